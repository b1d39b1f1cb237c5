#include "runtime/world.h"

#include <fmt/format.h>

#include <charconv>

#include "runtime/environment.h"

namespace lanewise {
namespace {

int number(const char* name, int least, int most, const std::string& rule = "") {
  if (!variable(name).empty()) return number_variable(name, least, most, rule);
  throw Error(Exit::kCommandLine, fmt::format("WORLD_SIZE is set, but not {}; start the processes with torchrun, or as "
                                              "the README says, or unset WORLD_SIZE",
                                              name));
}

}  // namespace

std::unique_ptr<Communicator> World::communicator(const std::string&) { return make_local_communicator(); }

std::optional<ProcessPlace> process_place() {
  if (variable("WORLD_SIZE").empty()) return std::nullopt;
  constexpr int kMostProcesses = 1 << 16, kMostPort = 65535;
  ProcessPlace place;
  place.size = number("WORLD_SIZE", 1, kMostProcesses);
  if (place.size == 1) {
    if (!variable("RANK").empty()) number("RANK", 0, 0, "0, by WORLD_SIZE");
    return std::nullopt;
  }
  place.rank = number("RANK", 0, place.size - 1);
  place.port = number("MASTER_PORT", 1, kMostPort);
  place.address = variable("MASTER_ADDR");
  if (place.address.empty()) number("MASTER_ADDR", 0, 0);  // says that it is missing
  place.one_host = variable("LOCAL_WORLD_SIZE") == variable("WORLD_SIZE");
  place.agent_serves = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return place;
}

int hosts() {
  const auto count = [](const char* name) {
    const std::string text = variable(name);
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const int all = count("WORLD_SIZE"), here = count("LOCAL_WORLD_SIZE");
  return here > 0 && all > here ? (all + here - 1) / here : 1;
}

}  // namespace lanewise
