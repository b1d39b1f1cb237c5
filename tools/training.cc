#include "tools/training.h"

#include "tools/output.h"
#include "tools/signals.h"
#include "tools/summary.h"

namespace lanewise {

int train_and_tell(Plans plans, RunOptions options, bool json) {
  catch_status_signal();
  options.terminal = error_is_terminal();
  options.signal = stop_signal;
  options.status_wanted = status_wanted;
  options.say = [](const std::string& line) { write_error(line + "\n"); };
  options.draw = write_terminal;
  const std::string directory = options.directory;
  Trainer trainer(std::move(plans), std::move(options));
  const nlohmann::ordered_json report = trainer.run();

  const int code = report.at("exit");
  if (code != 0) write_error("error: " + report.at("reason").get<std::string>() + "\n");
  if (json) {
    Output().write(to_text(report) + "\n");
  } else {
    Output().write(summary(report, directory));
  }
  return code;
}

}  // namespace lanewise
