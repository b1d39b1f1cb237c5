#include "runtime/checkpoint.h"

#include <random>

#include "tests/check.h"
#include "tests/runtime/checkpoints.h"
#include "tests/runtime/errors.h"

using namespace lanewise;

namespace {

// A run with the valid checkpoints 1 and 2, and a reader that collects what it says.
struct Run {
  Run() {
    CheckpointStore writer(folder.path(), {}, [](const std::string&) {});
    writer.save(make_checkpoint(1), std::nullopt);
    writer.save(make_checkpoint(2), std::nullopt);
  }

  // What is wrong with taking checkpoint 1 for 2, which is damaged in `file`; "" when all is right.
  std::string passes_over(const std::string& file) {
    said.clear();
    const std::optional<Checkpoint> found = reader.newest();
    if (!found) return "none found";
    if (const std::string difference = differs_from(*found, 1); !difference.empty()) return "took " + difference;
    if (said.size() != 1) return fmt::format("{} lines said", said.size());
    const std::string begin = fmt::format("checkpoint {} is damaged: ", newest);
    const bool names = said[0].starts_with(begin) && said[0].ends_with("; taking an older one") &&
                       said[0].find(newest + "/" + file, begin.size()) != std::string::npos;
    return names ? "" : "said " + said[0];
  }

  RunFolder folder;
  std::vector<std::string> said;
  const CheckpointStore reader{folder.path(), [this](const std::string& line) { said.push_back(line); }};
  const std::string newest = path_of(folder.path(), 2);
};

}  // namespace

TEST_CASE("checkpoint: what was saved is loaded bit for bit, with the run's own part of the manifest") {
  const RunFolder folder;
  write_checkpoint(folder.path(), make_checkpoint(77), 0.1);
  const Checkpoint read = load_checkpoint(folder.path());
  CHECK(differs_from(read, 77) == "");
  CHECK(read.manifest["plan"] == "3f2a");
  CHECK(read.manifest["step"] == 77);
  CHECK(read.manifest["format"] == 1);
  CHECK(score_of(read.manifest) == 0.1);
  CHECK(read.manifest["files"].size() == 2);
  CHECK(read.manifest["files"]["weights.safetensors"]["sha256"] ==
        sha256_hex(read_text(folder.path() + "/weights.safetensors")));

  const RunFolder again;
  write_checkpoint(again.path(), read, 0.1);
  for (const char* file : kCheckpointFiles) {
    CAPTURE(file);
    CHECK(read_text(again.path() + "/" + file) == read_text(folder.path() + "/" + file));
  }
  CHECK(std::system(fmt::format("cd {} && sha256sum -c --status manifest.sha256", folder.path()).c_str()) == 0);
}

TEST_CASE("checkpoint: a score that is no number is none") {
  const RunFolder folder;
  write_checkpoint(folder.path(), make_checkpoint(1), NAN);
  CHECK_FALSE(score_of(load_checkpoint_manifest(folder.path())));
  CHECK(read_text(folder.path() + "/manifest.json").find("\"score\": null") != std::string::npos);
}

TEST_CASE("checkpoint: a manifest that could not be read back is not written") {
  const RunFolder folder;
  Checkpoint checkpoint = make_checkpoint(1);
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 64; ++i) deep = nlohmann::ordered_json::array({deep});
  checkpoint.manifest["deep"] = deep;
  CHECK(error_of([&] { write_checkpoint(folder.path(), checkpoint, std::nullopt); }) ==
        fmt::format("6: {}/manifest.json: is nested deeper than 64", folder.path()));
  checkpoint.manifest["deep"] = "a name that is not UTF-8: \xff";
  write_checkpoint(folder.path(), checkpoint, std::nullopt);
  CHECK(differs_from(load_checkpoint(folder.path()), 1) == "");
}

TEST_CASE("checkpoint: any flipped bit of any file is noticed, the file named, the older checkpoint taken") {
  Run run;
  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::map<std::string, std::string> files;
  std::size_t bytes = 0;
  for (const char* name : kCheckpointFiles) bytes += (files[name] = read_text(run.newest + "/" + name)).size();
  for (int i = 0; i < 10000; ++i) {
    std::size_t at = random() % bytes;  // every byte of the checkpoint is as likely
    auto file = files.begin();
    for (; at >= file->second.size(); ++file) at -= file->second.size();
    const auto& [name, whole] = *file;
    const std::string path = run.newest + "/" + name;
    std::string text = whole;
    text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    write_text(path, text);
    // Which of the two manifest files was hit cannot be told: the sum is what links them.
    const std::string wrong = run.passes_over(name.starts_with("manifest") ? "manifest." : name);
    if (!wrong.empty()) FAIL_CHECK(name << ", byte " << at << ": " << wrong);
    write_text(path, whole);
  }
  CHECK(differs_from(*run.reader.newest(), 2) == "");
}

TEST_CASE("checkpoint: a file cut at any of its first 4096 bytes, or made longer, is noticed and named") {
  Run run;
  for (const char* file : kCheckpointFiles) {
    const std::string path = run.newest + "/" + file;
    const std::string whole = read_text(path);
    const std::string named = std::string_view(file).starts_with("manifest") ? "manifest." : file;
    for (std::size_t size = std::min<std::size_t>(whole.size(), 4096); size-- > 0;) {
      std::filesystem::resize_file(path, size);
      const std::string wrong = run.passes_over(named);
      if (!wrong.empty()) FAIL_CHECK(file << " cut to " << size << ": " << wrong);
    }
    write_text(path, whole + '\0');
    CHECK(run.passes_over(named) == "");
    std::filesystem::remove(path);
    CHECK(run.passes_over(file) == "");
    std::filesystem::create_directory(path);
    CHECK(run.passes_over(file) == "");
    std::filesystem::remove(path);
    write_text(path, whole);
  }
  CHECK(differs_from(*run.reader.newest(), 2) == "");
}

TEST_CASE("checkpoint: a manifest with the right sum is still checked") {
  Run run;
  const std::string path = run.newest + "/manifest.json";
  const nlohmann::ordered_json good = load_checkpoint_manifest(run.newest);
  const auto refused = [&](const std::function<void(nlohmann::ordered_json&)>& change) {
    nlohmann::ordered_json manifest = good;
    change(manifest);
    rewrite_manifest(run.newest, manifest.dump());
    return error_of([&] { load_checkpoint(run.newest); });
  };
  using Json = nlohmann::ordered_json;
  CHECK(refused([](Json&) {}) == "");
  CHECK(refused([](Json& m) { m.erase("format"); }) == "6: " + path + ": has no format version");
  CHECK(refused([](Json& m) { m["format"] = 1.5; }) == "6: " + path + ": has no format version");
  CHECK(refused([](Json& m) { m["step"] = -1; }) == "6: " + path + ": has no step");
  CHECK(refused([](Json& m) { m["files"] = "all"; }) == "6: " + path + ": has no list of files");
  CHECK(refused([](Json& m) { m["files"].erase("state.safetensors"); }) ==
        "6: " + path + ": lists no state.safetensors");
  CHECK(refused([](Json& m) { m["files"]["weights.safetensors"] = 1; }) ==
        "6: " + path + ": lists no weights.safetensors");
  const std::string weights = run.newest + "/weights.safetensors";
  CHECK(refused([](Json& m) { m["files"]["weights.safetensors"].erase("bytes"); }) ==
        fmt::format("6: {}: has {} bytes where its manifest says null", weights, std::filesystem::file_size(weights)));
  CHECK(refused([](Json& m) { m["files"]["weights.safetensors"].erase("sha256"); }) ==
        fmt::format("6: {}: its SHA-256 is not the one in its manifest", weights));
  rewrite_manifest(run.newest, "[1]");
  CHECK(error_of([&] { load_checkpoint(run.newest); }) ==
        "6: " + path + ": is no JSON object: it does not begin with {");
  rewrite_manifest(run.newest, R"({"format": 1, "format": 1})");
  CHECK(error_of([&] { load_checkpoint(run.newest); }) == "6: " + path + R"(: has the key "format" twice)");
  rewrite_manifest(run.newest, "{// no comments\n}");
  CHECK(error_of([&] { load_checkpoint(run.newest); }).starts_with("6: " + path + ": is not JSON: "));

  // Files with the right sums that are no safetensors: the reader has the last word.
  write_text(weights, "{}");
  CHECK(refused([&](Json& m) {
          m["files"]["weights.safetensors"] = {{"sha256", sha256_hex("{}")}, {"bytes", 2}};
        }) == "6: " + weights + ": has 2 bytes, too few for a safetensors file");
}

TEST_CASE("checkpoint: one of a newer format is not passed over, the message says what to do") {
  Run run;
  nlohmann::ordered_json manifest = load_checkpoint_manifest(run.newest);
  manifest["format"] = 2;
  rewrite_manifest(run.newest, manifest.dump());
  const std::string message = "6: " + run.newest +
                              "/manifest.json is of format 2, made by a newer lanewise; this one reads up to format 1: "
                              "use the newer one";
  CHECK(error_of([&] { run.reader.newest(); }) == message);
  CHECK(error_of([&] { run.reader.best(); }) == message);
  CHECK(run.said.empty());
}
