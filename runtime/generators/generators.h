// Generators is what all generators of a run share: the thread that serves them, the programs that wait for the next
// evaluation, and those that are leaving.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/generators/generator.h"

namespace lanewise {

class Generators {
 public:
  struct Options {
    std::function<void(const std::string& line)> say = [](const std::string&) {};  // to the user
    // A line that a program has written; by one thread at a time.
    std::function<void(const std::string& stream, std::string_view line)> log = [](const std::string&,
                                                                                   std::string_view) {};
    std::function<bool()> stop_wanted = [] { return false; };  // asked by who waits for a sample
  };
  explicit Generators(Options options);
  ~Generators();  // when all generators are gone; their programs have left, or are killed after two seconds
  Generators(const Generators&) = delete;
  Generators& operator=(const Generators&) = delete;

  const Options& options() const { return options_; }
  EventLoop& loop();  // starts with the first generator

  // A generator that was kept for the next one of its kind, or null. By one thread at a time.
  std::unique_ptr<Generator> take(const std::string& stream, bool evaluating);
  void keep(const std::string& stream, bool evaluating, std::unique_ptr<Generator> generator);

  // Sees to it that a program leaves. In the loop's thread.
  void farewell(std::unique_ptr<GeneratorChild> child);

 private:
  const Options options_;
  std::map<std::pair<std::string, bool>, std::unique_ptr<Generator>> kept_;
  std::mutex mutex_;  // guards loop_ while it is made, leaving_
  std::condition_variable changed_;
  std::map<GeneratorChild*, std::unique_ptr<GeneratorChild>> leaving_;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace lanewise
