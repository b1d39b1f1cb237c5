// Text in DOT, the language of Graphviz.
#pragma once

#include <string>

namespace lanewise {

// An id that reads back as it is.
std::string dot_id(const std::string& id);
// Text that is shown as it is; \n begins a line.
std::string dot_label(const std::string& text);

}  // namespace lanewise
