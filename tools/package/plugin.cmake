# What lanewise itself and its package share.

# fmt_first: the fmt that is linked. LibTorch's include folder carries another one, so that this one's is looked at first.
find_package(fmt REQUIRED)
find_path(fmt_include fmt/format.h REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fmt_first)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/fmt_first/fmt SYMBOLIC)
if(NOT TARGET fmt_first)
  add_library(fmt_first INTERFACE)
  target_include_directories(fmt_first SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/fmt_first)
  target_link_libraries(fmt_first INTERFACE fmt::fmt)
endif()

# lanewise_add_plugin(NAME SOURCE…): a plugin libNAME.so, and beside it NAME.json, its descriptors, for which the command
# (lanewise_COMMAND) loads it once.
function(lanewise_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE lanewise::plugin)
  set_target_properties(${name} PROPERTIES PREFIX lib SUFFIX .so)
  set(json $<TARGET_FILE_DIR:${name}>/${name}.json)
  add_custom_command(TARGET ${name} POST_BUILD VERBATIM COMMENT "Describing ${name}"
    COMMAND sh -c "\"$0\" nodes --plugin \"$1\" --json >\"$2.new\" && mv \"$2.new\" \"$2\""
            ${lanewise_COMMAND} $<TARGET_FILE:${name}> ${json})
endfunction()
