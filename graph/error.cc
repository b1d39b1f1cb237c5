#include "graph/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <tuple>

#include "graph/text.h"

namespace lanewise {
namespace {

constexpr std::size_t kPrinted = 100;  // problems that what() spells out

constexpr const char* kCommandLine = "command line";  // it comes after every file

// Line and column at the end of "FILE:LINE:COLUMN", and the file.
std::pair<std::pair<long, long>, std::string> position(const std::string& at) {
  const auto second = at.rfind(':');
  if (second == std::string::npos || second == 0) return {{0, 0}, at};
  const auto first = at.rfind(':', second - 1);
  if (first == std::string::npos) return {{0, 0}, at};
  std::pair<long, long> result{0, 0};
  std::from_chars(at.data() + first + 1, at.data() + second, result.first);
  std::from_chars(at.data() + second + 1, at.data() + at.size(), result.second);
  return {result, at.substr(0, first)};
}

// The files in the order in which they come up, each in its own order; each problem once.
std::vector<Problem> in_order(std::vector<Problem> problems) {
  std::set<std::tuple<std::string, std::string, std::string>> seen;
  std::erase_if(problems, [&](const Problem& p) { return !seen.emplace(p.place.at, p.place.pointer, p.rule).second; });
  std::vector<std::string> files;
  std::vector<std::tuple<std::size_t, std::pair<long, long>, std::size_t>> order(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string& at = problems[i].place.at;
    const auto [line, file] = position(at);
    const auto known = std::find(files.begin(), files.end(), file);
    const std::size_t rank = at == kCommandLine ? problems.size() : static_cast<std::size_t>(known - files.begin());
    if (known == files.end()) files.push_back(file);
    order[i] = {rank, line, i};
  }
  std::sort(order.begin(), order.end());
  std::vector<Problem> sorted;
  sorted.reserve(problems.size());
  for (const auto& [rank, line, i] : order) sorted.push_back(std::move(problems[i]));
  return sorted;
}

std::string text_of(const std::vector<Problem>& problems) {
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kPrinted); ++i) {
    const Problem& problem = problems[i];
    text += escaped(problem.place.at);
    if (!problem.place.pointer.empty()) text += "  " + escaped(problem.place.pointer);
    text += "\n";
    for (std::size_t start = 0; start <= problem.rule.size();) {
      const std::size_t end = std::min(problem.rule.find('\n', start), problem.rule.size());
      text += "  " + escaped(problem.rule.substr(start, end - start)) + "\n";
      start = end + 1;
    }
  }
  if (problems.size() > kPrinted) text += fmt::format("… and {} more\n", problems.size() - kPrinted);
  return text + counted(problems.size(), "problem") + "; nothing was started";
}

Exit exit_of(const std::vector<Problem>& problems) {
  const auto has = [&](Exit exit) {
    return std::any_of(problems.begin(), problems.end(), [&](const Problem& p) { return p.exit == exit; });
  };
  return problems.empty() || has(Exit::kPipeline) ? Exit::kPipeline : has(Exit::kData) ? Exit::kData : problems[0].exit;
}

}  // namespace

PipelineError::PipelineError(std::vector<Problem> problems)
    : Error(exit_of(problems), text_of(in_order(problems))), problems_(in_order(std::move(problems))) {}

}  // namespace lanewise
