# SPDX-License-Identifier: Apache-2.0
# fermata_test_cache: the engine that tests play on a whole cache (cache_fixture.h) and the content oracle. Included by every
# folder that needs it.
if(NOT TARGET fermata_test_cache)
  add_library(fermata_test_cache STATIC
    ${CMAKE_CURRENT_LIST_DIR}/cache_fixture.cc
    ${CMAKE_CURRENT_LIST_DIR}/content_oracle.cc)
  target_link_libraries(fermata_test_cache PUBLIC fermata_static fermata_flags GTest::gmock GTest::gtest)
  target_include_directories(fermata_test_cache PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(fermata_test_cache PUBLIC FERMATA_STATIC)
  # Every byte of every block is written and compared here: the one part of the tests worth optimising.
  target_compile_options(fermata_test_cache PRIVATE -O1 -g1)
  fermata_test_pch(fermata_cache_test_pch DEPS fermata_test_cache
    HEADERS ${CMAKE_CURRENT_LIST_DIR}/cache_fixture.h)
endif()
