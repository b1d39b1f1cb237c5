// lanewise nodes: every node type, model and loss, from the descriptors that they are checked by.
#include <fmt/format.h>

#include "nodes/builtin.h"
#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

using Json = nlohmann::ordered_json;

// A node type, a model or a loss, as told here.
struct Entry {
  std::string kind;  // "node type", "model", "loss"
  std::string name, help, role;
  std::vector<Port> inputs, outputs;
  bool has_device = false;
  std::vector<FieldInfo> fields;
  Json descriptor;
};

std::vector<Entry> entries(const Types& types) {
  std::vector<Entry> list;
  for (const NodeType& t : types.nodes) {
    if (t.internal) continue;
    list.push_back({"node type", t.name, t.help, to_string(t.role), t.inputs, t.outputs, t.has_device,
                    describe(t.fields), descriptor_of(t)});
  }
  const auto add_parts = [&](const std::vector<PartType>& parts, const std::string& kind) {
    for (const PartType& t : parts)
      list.push_back({kind, t.name, t.help, "", {}, {}, false, describe(t.fields), descriptor_of(t, kind)});
  };
  add_parts(types.models, "model");
  add_parts(types.losses, "loss");
  return list;
}

std::string fallback_text(const FieldInfo& field) {
  if (field.required) return "required";
  if (field.fallback.is_null()) return "none";
  return field.fallback.is_number_float() ? short_number(field.fallback.get<double>()) : field.fallback.dump();
}

// "seconds; above 0"
std::string limits(const FieldInfo& field) {
  const std::string bounds = field.bounds();
  return field.unit + (field.unit.empty() || bounds.empty() ? "" : "; ") + bounds;
}

std::string port_text(const std::vector<Port>& ports) {
  std::string text;
  for (const Port& p : ports)
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", p.name, p.many ? " (one or more)" : "");
  return text.empty() ? "none" : text;
}

// The smallest use of a node type: what to write in a file.
std::string example(const Entry& entry) {
  Json params = Json::object();
  for (const FieldInfo& field : entry.fields) {
    if (field.required && entry.kind == "node type") params[field.name] = "…";
  }
  if (entry.kind == "model") return fmt::format("\"models\": {{ \"net\": {{ \"type\": \"{}\" }} }}", entry.name);
  if (entry.kind == "loss") return fmt::format("\"params\": {{ \"model\": \"net\", \"loss\": \"{}\" }}", entry.name);
  return fmt::format("{{ \"id\": \"my_{0}\", \"type\": \"{0}\"{1}{2} }}", entry.name,
                     entry.inputs.empty() ? "" : ", \"in\": [ { \"from\": \"…\" } ]",
                     params.empty() ? "" : ", \"params\": " + params.dump());
}

std::string text_of(const Entry& entry) {
  std::string text =
      fmt::format("{} ({}): {}\n\n", entry.name, entry.kind == "node type" ? entry.role : entry.kind, entry.help);
  if (entry.kind == "node type") {
    text += fmt::format("  inputs   {}\n  outputs  {}\n", port_text(entry.inputs), port_text(entry.outputs));
    if (entry.has_device) text += "  device   cpu:* (one virtual device a lane), auto:*\n";
    text += "\n";
  }
  const std::vector<FieldInfo> fields = flattened(entry.fields);
  std::vector<std::vector<std::string>> rows = {{"parameter", "type", "default", "bounds", ""}};
  for (const FieldInfo& f : fields) rows.push_back({f.name, f.type, fallback_text(f), limits(f), f.help});
  text += fields.empty() ? "  no parameters\n" : columns(rows, "  ");
  return text + fmt::format("\n  {}\n", example(entry));
}

std::string list_text(const std::vector<Entry>& list) {
  std::string text, section;
  std::vector<std::vector<std::string>> rows;
  const auto flush = [&] {
    text += columns(rows, "  ");
    rows.clear();
  };
  for (const Entry& entry : list) {
    if (entry.kind != section) {
      flush();
      section = entry.kind;
      text += fmt::format("{}{}s\n", text.empty() ? "" : "\n", section == "loss" ? "losse" : section);
    }
    rows.push_back({entry.name, entry.role, entry.help});
    if (entry.role.empty()) rows.back().erase(rows.back().begin() + 1);
  }
  flush();
  return text + "\n`lanewise nodes NAME` tells all about one.\n";
}

std::string markdown_cell(std::string text) {
  for (std::size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, "\\");
  return text;
}

std::string markdown(const std::vector<Entry>& list) {
  std::string text =
      "# Node types, models and losses\n\n"
      "Generated from the descriptors by `tools/renew-golden`; `lanewise nodes NAME` prints the same.\n";
  for (const Entry& entry : list) {
    text += fmt::format("\n## {} ({})\n\n{}.\n\n", entry.name, entry.kind == "node type" ? entry.role : entry.kind,
                        entry.help);
    if (entry.kind == "node type") {
      text += fmt::format("Inputs: {}. Outputs: {}.\n\n", port_text(entry.inputs), port_text(entry.outputs));
    }
    const std::vector<FieldInfo> fields = flattened(entry.fields);
    if (fields.empty()) {
      text += "No parameters.\n";
      continue;
    }
    text += "| parameter | type | default | bounds | |\n| --- | --- | --- | --- | --- |\n";
    for (const FieldInfo& f : fields) {
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", f.name, f.type, markdown_cell(fallback_text(f)),
                          markdown_cell(limits(f)), markdown_cell(f.help));
    }
  }
  return text;
}

}  // namespace

int nodes_command(const Arguments& arguments) {
  Options options(
      "nodes",
      "Lists the node types, models and losses, or tells all about one: ports, parameters, defaults, bounds. With "
      "--plugin it lists those of the plugins instead, and loads them to ask: name only plugins you trust. As JSON "
      "that "
      "is the file NAME.json, which the other commands know libNAME.so by without loading it.",
      {"lanewise nodes", "lanewise nodes csv", "lanewise nodes gru", "lanewise nodes --json",
       "lanewise nodes --plugin libspike.so --json > spike.json"});
  std::string name;
  bool json = false, as_markdown = false, only_names = false;
  options.text("NAME", name, "a node type, model or loss; all when absent", "");
  options.flag("--json", json, "prints the descriptors as JSON");
  options.flag("--markdown", as_markdown, "prints them as nodes/README.md has them");
  options.flag("--names", only_names, "prints their names, one a line");
  options.plugins();
  if (!options.parse(arguments)) return 0;

  const std::vector<Entry> all = entries(options.listed_types());
  std::vector<Entry> chosen;
  std::vector<std::string> names;
  for (const Entry& entry : all) {
    names.push_back(entry.name);
    if (name.empty() || entry.name == name) chosen.push_back(entry);
  }
  if (chosen.empty() && !name.empty()) {
    throw Error(Exit::kCommandLine,
                fmt::format("there is no node type, model or loss \"{}\"{}; `lanewise nodes` lists them all", name,
                            did_you_mean(name, names)));
  }
  std::string text;
  if (json) {
    Json list = Json::array();
    for (const Entry& entry : chosen) list.push_back(entry.descriptor);
    text = to_text(name.empty() || chosen.size() > 1 ? list : list.front()) + "\n";
  } else if (only_names) {
    for (const Entry& entry : chosen) text += entry.name + "\n";
  } else if (as_markdown) {
    text = markdown(chosen);
  } else if (name.empty()) {
    text = list_text(chosen);
  } else {
    for (const Entry& entry : chosen) text += (text.empty() ? "" : "\n") + text_of(entry);
  }
  Output().write(text);
  return 0;
}

}  // namespace lanewise
