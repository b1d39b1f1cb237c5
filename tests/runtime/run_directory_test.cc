#include "runtime/run_directory.h"

#include "runtime/output_file.h"
#include "tests/check.h"
#include "tests/pipeline.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

TEST_CASE("output file: what was written is there after close, in one piece or many") {
  const TemporaryFolder folder;
  OutputFile file(folder.path() + "/x");
  CHECK(file.empty());
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece(static_cast<std::size_t>(i * 37 % 200), static_cast<char>('a' + i % 26));
    file.write(piece);
    all += piece;
  }
  const std::string large(200'000, 'z');
  file.write(large);
  file.write("end");
  file.close();
  CHECK_FALSE(file.empty());
  CHECK(read_text(folder.path() + "/x") == all + large + "end");
}

TEST_CASE("output file: a full disk and a missing folder are errors that name the file and the reason") {
  OutputFile full("/dev/full");
  full.write("x");
  CHECK(error_of([&] { full.flush(); }) == "6: cannot write /dev/full: No space left on device");
  CHECK(error_of([] { OutputFile file("/nowhere/x"); }) == "6: cannot create /nowhere/x: No such file or directory");
}

TEST_CASE("run directory: without a path nothing is written, with one the files are whole at the end") {
  std::vector<std::string> said;
  RunDirectory none("", [&](const std::string& line) { said.push_back(line); });
  none.append("metrics.jsonl", "x");
  none.write("report.json", "y");
  CHECK(none.tap("a", "x.csv") == nullptr);
  none.say("hello");
  CHECK(said == std::vector<std::string>{"hello"});

  const TemporaryFolder folder;
  RunDirectory some(folder.path(), [](const std::string&) {});
  some.append("metrics.jsonl", "1\n");
  some.append("metrics.jsonl", "2\n");
  OutputFile* tap = some.tap("a", "x.csv");
  CHECK(some.tap("a", "x.csv") == tap);
  tap->write("3\n");
  some.write("report.json", "{}\n");
  some.close();
  CHECK(read_text(folder.path() + "/metrics.jsonl") == "1\n2\n");
  CHECK(read_text(folder.path() + "/x.csv") == "3\n");
  CHECK(read_text(folder.path() + "/report.json") == "{}\n");
}

TEST_CASE("run directory: a file that cannot be made is an error each time, and the others are still written") {
  const TemporaryFolder folder;
  RunDirectory run(folder.path(), [](const std::string&) {});
  run.append("metrics.jsonl", "1\n");
  std::filesystem::create_directory(folder.path() + "/evaluations.jsonl");
  const auto append = [&] { run.append("evaluations.jsonl", "x"); };
  const std::string error = "6: cannot create " + folder.path() + "/evaluations.jsonl: Is a directory";
  CHECK(error_of(append) == error);
  CHECK(error_of(append) == error);
  CHECK(run.flush() == RunDirectory::Lengths{{"metrics.jsonl", 2}});
  CHECK(read_text(folder.path() + "/metrics.jsonl") == "1\n");
}
