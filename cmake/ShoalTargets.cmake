# Targets with the flags that every part of Shoal is built with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(SHOAL_WERROR "Warnings are errors" ON)
set(SHOAL_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=<this>")
option(SHOAL_FUZZ "Build the fuzzers (needs clang)" OFF)

add_library(shoal_flags INTERFACE)
target_compile_options(shoal_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       -Wimplicit-fallthrough -fno-omit-frame-pointer
                       -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= $<$<BOOL:${SHOAL_WERROR}>:-Werror>)
target_include_directories(shoal_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(SHOAL_SANITIZE)
  target_compile_options(shoal_flags INTERFACE -fsanitize=${SHOAL_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(shoal_flags INTERFACE -fsanitize=${SHOAL_SANITIZE})
endif()
if(SHOAL_FUZZ)
  target_compile_options(shoal_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# shoal_library(NAME SOURCES a.cc ... [DEPS target ...]): the static library shoal_NAME.
function(shoal_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(shoal_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(shoal_${name} PUBLIC shoal_flags ${ARG_DEPS})
endfunction()

# shoal_test(NAME SOURCES a_test.cc ... [DEPS target ...] [COMPUTES]): one GoogleTest program NAME,
# and one ctest entry of that name. The sources of a test are not optimized, which nearly halves the
# time to compile them; COMPUTES is for those whose own loops are the work.
function(shoal_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(CMAKE_CROSSCOMPILING OR SHOAL_SANITIZE)  # emulated, or checked at every step
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE shoal_flags ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  if(NOT ARG_COMPUTES)
    target_compile_options(${name} PRIVATE -O0)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
endfunction()
