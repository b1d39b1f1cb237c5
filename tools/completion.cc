// lanewise completion: what a shell needs to complete the command's words. The scripts ask the command itself, so that
// they never grow old: `lanewise COMMAND --list-options` and `lanewise explain-config FILE --keys`.
#include <fmt/format.h>

#include "tools/options.h"
#include "tools/output.h"

namespace lanewise {
namespace {

constexpr const char* kBash = R"sh(# lanewise for bash: source <(lanewise completion bash)
_lanewise_offer() {  # offers the lines of standard input that begin with $1, with $2 behind
  local line quoted
  while IFS= read -r line; do
    [ "${line#"$1"}" = "$line" ] && [ -n "$1" ] && continue
    printf -v quoted %q "$line"  # a file may hold any names
    COMPREPLY+=("$quoted$2")
  done
}
_lanewise() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} previous=${COMP_WORDS[COMP_CWORD-1]} word
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '@COMMANDS@' -- "$current"))
    return
  fi
  if [ "$previous" = --set ] || [ "$command $COMP_CWORD" = "explain-config 3" ]; then
    for word in "${COMP_WORDS[@]:2}"; do
      [ -f "$word" ] || continue
      local behind=
      [ "$previous" != --set ] || behind='='
      _lanewise_offer "$current" "$behind" < <(lanewise explain-config "$word" --keys 2>/dev/null |
        { [ -n "$behind" ] && grep -vE '^[^.]+[.]type$' || cat; })  # types are swapped, not set
      compopt -o nospace 2>/dev/null
      return
    done
  fi
  case $current in
    -*) _lanewise_offer "$current" '' < <(lanewise "$command" --list-options 2>/dev/null) ;;
    *)
      case $command in
        nodes | check-node) _lanewise_offer "$current" '' < <(lanewise nodes --names 2>/dev/null) ;;
      esac
      ;;
  esac
}
complete -o default -F _lanewise lanewise
)sh";

constexpr const char* kZsh = R"sh(#compdef lanewise
# lanewise for zsh: source <(lanewise completion zsh)
_lanewise() {
  local command=$words[2] previous=$words[CURRENT-1] word
  if (( CURRENT == 2 )); then
    compadd -- @COMMANDS@
    return
  fi
  if [[ $previous == --set || "$command $CURRENT" == "explain-config 4" ]]; then
    for word in $words[3,-1]; do
      [[ -f $word ]] || continue
      local suffix=''
      [[ $previous == --set ]] && suffix='='
      compadd -S "$suffix" -- ${(f)"$(lanewise explain-config $word --keys 2>/dev/null)"}
      return
    done
  fi
  if [[ $PREFIX == -* ]]; then
    compadd -- ${(f)"$(lanewise $command --list-options 2>/dev/null)"}
  elif [[ $command == nodes || $command == check-node ]]; then
    compadd -- ${(f)"$(lanewise nodes --names 2>/dev/null)"}
  else
    _files
  fi
}
compdef _lanewise lanewise
)sh";

}  // namespace

int completion_command(const Arguments& arguments) {
  Options options("completion", "Prints what a shell needs to complete commands, options, keys and files.",
                  {"source <(lanewise completion bash)", "source <(lanewise completion zsh)"});
  std::string shell;
  options.text("SHELL", shell, "bash or zsh", "");
  if (!options.parse(arguments)) return 0;
  options.one_of("SHELL", shell, {"bash", "zsh"});
  std::string names;
  for (const Command& command : commands()) names += (names.empty() ? "" : " ") + command.name;
  std::string script = shell == "bash" ? kBash : kZsh;
  const std::string mark = "@COMMANDS@";
  script.replace(script.find(mark), mark.size(), names);
  Output().write(script);
  return 0;
}

}  // namespace lanewise
