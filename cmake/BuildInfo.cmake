# shoal_build_info: an INTERFACE target that carries build_info.h (version, commit, build type,
# compiler), for `shoal --version`. The header is looked at in every build and written only when
# its text changes; it holds no date, so that two builds of one commit are the same bytes.

set(SHOAL_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)
add_custom_target(shoal_write_build_info
  COMMAND ${CMAKE_COMMAND}
          -DOUTPUT=${SHOAL_GENERATED_DIR}/build_info.h
          -DSOURCE_DIR=${PROJECT_SOURCE_DIR}
          -DVERSION=${PROJECT_VERSION}
          -DBUILD_TYPE=${CMAKE_BUILD_TYPE}
          "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
          "-DTARGET=${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}"
          "-DSANITIZE=${SHOAL_SANITIZE}"
          -P ${PROJECT_SOURCE_DIR}/cmake/WriteBuildInfo.cmake
  BYPRODUCTS ${SHOAL_GENERATED_DIR}/build_info.h
  COMMENT "Looking at build_info.h"
  VERBATIM)

add_library(shoal_build_info INTERFACE)
target_include_directories(shoal_build_info INTERFACE ${SHOAL_GENERATED_DIR})
add_dependencies(shoal_build_info shoal_write_build_info)
