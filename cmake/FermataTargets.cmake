# SPDX-License-Identifier: Apache-2.0
# fermata_library(), fermata_test(), fermata_c_program(), fermata_shared_options(), fermata_fuzzer() and the flags that
# every target of ours is built with.

add_library(fermata_sanitize INTERFACE)
if(FERMATA_SANITIZE)
  target_compile_options(fermata_sanitize INTERFACE -fsanitize=${FERMATA_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(fermata_sanitize INTERFACE -fsanitize=${FERMATA_SANITIZE})
endif()
if(FERMATA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FERMATA_FUZZ needs clang, CMAKE_CXX_COMPILER is ${CMAKE_CXX_COMPILER}")
  endif()
  target_compile_options(fermata_sanitize INTERFACE -fsanitize=fuzzer-no-link)
endif()

add_library(fermata_warnings INTERFACE)
target_compile_options(fermata_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow
  $<$<BOOL:${FERMATA_WERROR}>:-Werror>)

add_library(fermata_flags INTERFACE)
target_link_libraries(fermata_flags INTERFACE fermata_sanitize fermata_warnings)
target_compile_options(fermata_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)
target_include_directories(fermata_flags INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
if(FERMATA_HASH_BITS LESS 128)
  target_compile_definitions(fermata_flags INTERFACE FERMATA_HASH_BITS=${FERMATA_HASH_BITS})
endif()

# Half of compiling a file of ours is reading the same standard headers, so they are read once. A precompiled header demands
# equal flags and definitions, hence one for the layers (owned by the first, fermata_base), and two for tests below. The presets
# clang and release build without any (CMAKE_DISABLE_PRECOMPILE_HEADERS), so that a file which lacks an include is found.
set(fermata_std_headers <algorithm> <array> <atomic> <cinttypes> <cstdint> <cstring> <deque> <functional> <map> <memory>
  <optional> <span> <string> <string_view> <utility> <vector>)

# fermata_library(name SOURCES ... DEPS ...): a static, hidden, position-independent layer of the library.
function(fermata_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC fermata_flags ${arg_DEPS})
  if(FERMATA_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
  if(name STREQUAL fermata_base)
    target_precompile_headers(${name} PRIVATE ${fermata_std_headers} <absl/container/flat_hash_map.h>)
  elseif(name STREQUAL fermata_bench_lib)  # its definitions differ
    target_precompile_headers(${name} PRIVATE ${fermata_std_headers})
  else()
    target_precompile_headers(${name} REUSE_FROM fermata_base)
  endif()
endfunction()

# Tests run for seconds and are compiled at each change: no optimisation, line numbers alone as debug information. What they
# test keeps the flags of the build type.
add_library(fermata_test_flags INTERFACE)
target_link_libraries(fermata_test_flags INTERFACE fermata_flags)
target_compile_options(fermata_test_flags INTERFACE -O0 -g1)

# fermata_test_pch(target DEPS ... HEADERS ...): owns a precompiled header for tests that link DEPS. Executables and what they
# share have to agree on position-independent code, so it is left to the compiler's default.
function(fermata_test_pch target)
  cmake_parse_arguments(arg "" "" "DEPS;HEADERS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${target}.cc CONTENT "")
  add_library(${target} OBJECT ${CMAKE_BINARY_DIR}/${target}.cc)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(${target} PRIVATE fermata_test_flags ${arg_DEPS} GTest::gmock GTest::gtest)
  target_precompile_headers(${target} PRIVATE <gmock/gmock.h> <gtest/gtest.h> ${fermata_std_headers} <set> <filesystem>
    ${arg_HEADERS})
endfunction()

# fermata_test(name SOURCES ... DEPS ... LABELS ...): one GoogleTest binary, one ctest entry. Labels: unit, conformance, capi,
# faults, sim, fuzz, package, gate; `threads` for what ThreadSanitizer should see; `long` keeps a test out of scripts/test
# and scripts/check (scripts/long runs it).
function(fermata_test name)
  cmake_parse_arguments(arg "UNITY" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  if(arg_UNITY)  # files whose helpers do not clash: their templates are instantiated once
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
  target_link_libraries(${name} PRIVATE fermata_test_flags ${arg_DEPS} GTest::gmock GTest::gtest_main)
  if("fermata_test_cache" IN_LIST arg_DEPS)
    target_precompile_headers(${name} REUSE_FROM fermata_cache_test_pch)
  else()
    target_precompile_headers(${name} REUSE_FROM fermata_plain_test_pch)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# fermata_c_program(name SOURCES ...): a C99 program that sees the installed headers and the shared library, nothing else.
function(fermata_c_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${name} PRIVATE -pedantic)
  target_link_libraries(${name} PRIVATE fermata_sanitize fermata_warnings fermata::fermata ${arg_LIBRARIES})
endfunction()

# fermata_shared_options(target map): the version script, and no symbol left open (sanitizers leave theirs open on purpose).
function(fermata_shared_options target map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${map})
  if(NOT FERMATA_SANITIZE AND NOT FERMATA_FUZZ)
    target_link_options(${target} PRIVATE LINKER:--no-undefined)
  endif()
endfunction()

# fermata_fuzzer(name CORPUS dir SOURCES ... DEPS ...): in every build a driver that runs the committed corpus once, a ctest entry
# with label fuzz. With FERMATA_FUZZ also <name>_libfuzzer, reached through the target fermata_fuzzers.
function(fermata_fuzzer name)
  cmake_parse_arguments(arg "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus_driver.cc)
  target_link_libraries(${name} PRIVATE fermata_flags ${arg_DEPS})
  add_test(NAME ${name} COMMAND ${name} ${arg_CORPUS})
  set_tests_properties(${name} PROPERTIES LABELS "fuzz" TIMEOUT 120)
  if(FERMATA_FUZZ)
    add_executable(${name}_libfuzzer ${arg_SOURCES})
    target_link_libraries(${name}_libfuzzer PRIVATE fermata_flags ${arg_DEPS})
    target_link_options(${name}_libfuzzer PRIVATE -fsanitize=fuzzer)
    add_dependencies(fermata_fuzzers ${name}_libfuzzer ${name})
  endif()
endfunction()
if(FERMATA_FUZZ)
  add_custom_target(fermata_fuzzers)
endif()

# fermata_red_test(name REGEX COMMAND...): the gate's command, on its kept bad input, must fail and say why.
function(fermata_red_test name pattern)
  add_test(NAME red_${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/tools/expect_fail.sh "${pattern}" ${ARGN})
  set_tests_properties(red_${name} PROPERTIES LABELS gate TIMEOUT 60)
endfunction()
