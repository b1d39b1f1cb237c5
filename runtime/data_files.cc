#include "runtime/data_files.h"

#include <filesystem>

#include "runtime/input_file.h"
#include "runtime/model.h"

namespace lanewise {

namespace {

// Adds the file under `name`, where it is a regular one, with a path that is the same wherever a run is resumed from.
void add(const std::string& name, const std::string& file, std::map<std::string, std::string>& sums,
         nlohmann::ordered_json& files) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  const std::string path = std::filesystem::absolute(file).lexically_normal();
  if (!sums.contains(path)) {
    try {
      sums[path] = InputFile(path).sha256();
    } catch (const Error& error) {
      throw Error(Exit::kData, fmt::format("{}: {}", name, error.what()));
    }
  }
  files[name] = {{"path", path}, {"sha256", sums[path]}};
}

}  // namespace

nlohmann::ordered_json data_files(const Plan& plan) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  std::map<std::string, std::string> sums;
  for (const int source : plan.with_role(Role::kSource)) {
    const PlanNode& node = plan.nodes[source];
    for (const FieldInfo& info : describe(node.type->fields)) {
      if (info.type == "file") add(node.id, node.params.value(info.name, ""), sums, files);
    }
  }
  files.update(code_files(plan));
  return files;
}

nlohmann::ordered_json code_files(const Plan& plan) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  std::map<std::string, std::string> sums;
  for (const PlanModel& model : plan.models) {
    if (model_type(model.type).load) add("models." + model.name, model.params.at("path"), sums, files);
  }
  for (const int lane : plan.with_role(Role::kCompute)) {
    const PlanNode& node = plan.nodes[lane];
    add(node.id, node.params.value("loss_path", ""), sums, files);
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
