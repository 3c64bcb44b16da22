# Run by cmake -P in every build (see BuildInfo.cmake): writes OUTPUT when its text changes.
cmake_minimum_required(VERSION 3.25)

set(commit "unknown")
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed)
    set(commit ${head})
    execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT changes STREQUAL "")
      string(APPEND commit "-dirty")
    endif()
  endif()
endif()

file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
"// The build this program came from: made by the build, see cmake/BuildInfo.cmake.
#pragma once

namespace shoal {

inline constexpr const char* kBuildVersion = \"@VERSION@\";
// The commit, with \"-dirty\" when tracked files differ from it, or \"unknown\" outside a clone.
inline constexpr const char* kBuildCommit = \"@commit@\";
inline constexpr const char* kBuildType = \"@BUILD_TYPE@\";
inline constexpr const char* kBuildCompiler = \"@COMPILER@\";
inline constexpr const char* kBuildTarget = \"@TARGET@\";
// Sanitizers as given to -fsanitize, or empty.
inline constexpr const char* kBuildSanitize = \"@SANITIZE@\";

}  // namespace shoal
")
