# header_checks: compiles every header of src/ alone, so that none leans on what its includers
# happen to include first.
#
# A header with a source of its own (x.h and x.cc) is proven by that source, which includes it
# first (tools/check_layering.py sees to it). Every other one gets a source of one line here.

# Headers in a folder named for another architecture (x86, arm) need its compiler: left out.

# shoal_header_checks(MODULES name ...): call it after all modules; it is built only when asked for.
function(shoal_header_checks)
  cmake_parse_arguments(ARG "" "" "MODULES" ${ARGN})
  file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/src/*.h)
  set(sources)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER headers EXCLUDE REGEX "/arm/")
  else()
    list(FILTER headers EXCLUDE REGEX "/x86/")
  endif()
  foreach(header IN LISTS headers)
    string(REGEX REPLACE "\\.h$" ".cc" own_source ${PROJECT_SOURCE_DIR}/src/${header})
    if(EXISTS ${own_source})
      continue()
    endif()
    string(REPLACE "/" "_" name ${header})
    set(source ${PROJECT_BINARY_DIR}/header_checks/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  add_library(header_checks OBJECT EXCLUDE_FROM_ALL ${sources})
  target_compile_options(header_checks PRIVATE -O0 -g0)
  # What src/text/CMakeLists.txt defines for its tests.
  target_compile_definitions(header_checks PRIVATE SHOAL_TEXT_TESTDATA="")
  target_link_libraries(header_checks PRIVATE shoal_flags GTest::gmock)
  foreach(module IN LISTS ARG_MODULES)
    if(TARGET shoal_${module})
      target_link_libraries(header_checks PRIVATE shoal_${module})
    endif()
  endforeach()
endfunction()
