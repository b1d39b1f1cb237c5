// What a plugin includes: a library of node types, models and losses of one's own, built outside of lanewise.
//
//   #include "nodes/plugin.h"
//   …
//   LANEWISE_PLUGIN(types) { types.add(spike()); }
//
// That is its one entry. A plugin is a module that links nothing of lanewise: the command that opens it has every
// function of the headers that it is built with. It is opened once a process, before any node is made, and never
// closed.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include "graph/plugins.h"
#include "graph/registry.h"

#ifndef LANEWISE_VERSION
#error "build it by find_package(lanewise) and lanewise_add_plugin(), which say for which version"
#endif

namespace lanewise {

struct ModelType;  // runtime/model.h
struct LossType;   // runtime/loss.h

// What a plugin tells its types to. An exception ends the registration, and its message is shown.
class PluginTable {
 public:
  virtual void add(NodeType type) = 0;
  virtual void add(ModelType type) = 0;
  virtual void add(LossType type) = 0;

 protected:
  ~PluginTable() = default;
};

}  // namespace lanewise

#define LANEWISE_TEXT_OF(macro) LANEWISE_TEXT(macro)
#define LANEWISE_TEXT(tokens) #tokens
#ifdef __clang__
#define LANEWISE_COMPILER "clang " LANEWISE_TEXT_OF(__clang_major__)
#else
#define LANEWISE_COMPILER "g++ " LANEWISE_TEXT_OF(__GNUC__)
#endif

// What must be the same on both sides. The first line counts up when these headers change what they mean.
#define LANEWISE_PLUGIN_STAMP \
  "plugin interface: 1\n"                                                                                     \
  "lanewise: " LANEWISE_VERSION                                                                               \
  "\n"                                                                                                        \
  "LibTorch: " TORCH_VERSION                                                                                  \
  "\n"                                                                                                        \
  "compiler: " LANEWISE_COMPILER                                                                              \
  "\n"                                                                                                        \
  "__cplusplus: " LANEWISE_TEXT_OF(__cplusplus)                                                               \
  "\n"                                                                                                        \
  "libstdc++: " LANEWISE_TEXT_OF(_GLIBCXX_RELEASE) ", ABI " LANEWISE_TEXT_OF(_GLIBCXX_USE_CXX11_ABI) "\n"

// The stamp is read from the file, before anything of it is loaded (graph/plugins.h).
#define LANEWISE_PLUGIN(table)                                                                          \
  extern "C" __attribute__((visibility("default"), used)) const char lanewise_plugin_stamp[] =          \
      LANEWISE_PLUGIN_MARK LANEWISE_PLUGIN_STAMP;                                                       \
  extern "C" __attribute__((visibility("default"))) void lanewise_plugin(lanewise::PluginTable& table); \
  extern "C" void lanewise_plugin(lanewise::PluginTable& table)
