// Signals and descriptors of the process.
#pragma once

namespace lanewise {

// Standard descriptors that came closed are opened on /dev/null, so that no file of ours becomes descriptor 1; writing
// to such a standard output still fails.
void prepare_descriptors();

// A reader that went away or a file-size limit becomes a failed write, which is reported, and not a killed process.
void ignore_write_signals();

// From now on the first SIGINT, SIGTERM or SIGHUP is remembered, and the second ends the process at once with exit code
// 11. A signal that was ignored when the process started (nohup) stays ignored.
void catch_stop_signals();

// The signal that came, 0 when none did. From any thread.
int stop_signal();

// From now on SIGUSR1 asks where the run stands, and does nothing else to it.
void catch_status_signal();
// True once for all that came since it was last asked. From any thread.
bool status_wanted();

}  // namespace lanewise
