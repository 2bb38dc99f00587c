# SPDX-License-Identifier: Apache-2.0
fermata_test(ssd_tier_test UNITY
  SOURCES ssd_device_test.cc ssd_fault_test.cc ssd_format_test.cc ssd_open_test.cc ssd_tier_test.cc
          ${PROJECT_SOURCE_DIR}/tests/support/sim_block_device.cc
  DEPS fermata_tiers LABELS unit)
# Its own process: it forks a child and kills it.
fermata_test(ssd_kill_test SOURCES ssd_kill_test.cc DEPS fermata_tiers LABELS unit)
