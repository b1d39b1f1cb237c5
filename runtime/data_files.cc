#include "runtime/data_files.h"

#include <filesystem>

#include "runtime/input_file.h"

namespace lanewise {

nlohmann::ordered_json data_files(const Plan& plan) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  std::map<std::string, std::string> sums;
  for (const int source : plan.with_role(Role::kSource)) {
    const PlanNode& node = plan.nodes[source];
    for (const FieldInfo& info : describe(node.type->fields)) {
      if (info.type != "file") continue;
      const std::string path = node.params.value(info.name, "");
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(path, ignored)) continue;
      if (!sums.contains(path)) {
        try {
          sums[path] = InputFile(path).sha256();
        } catch (const Error& error) {
          throw Error(Exit::kData, fmt::format("{}: {}", node.id, error.what()));
        }
      }
      files[node.id] = {{"path", path}, {"sha256", sums[path]}};
    }
  }
  return files;
}

void check_data_files(const nlohmann::ordered_json& then, const nlohmann::ordered_json& now) {
  for (auto it = then.begin(); it != then.end(); ++it) {
    const auto found = now.find(it.key());
    if (found == now.end() || (*found)["path"] != (*it)["path"] || (*found)["sha256"] == (*it)["sha256"]) continue;
    throw Error(
        Exit::kCheckpoint,
        fmt::format(
            "{} reads {}, which was changed since the checkpoint was taken; put the old one back, or train anew",
            it.key(), (*it)["path"].get<std::string>()));
  }
}

}  // namespace lanewise
