# SPDX-License-Identifier: Apache-2.0
set(FERMATA_SSD_TEST_SUPPORT ${PROJECT_SOURCE_DIR}/tests/support/sim_block_device.cc)
fermata_test(ssd_format_test SOURCES ssd_format_test.cc DEPS fermata_tiers LABELS unit)
fermata_test(ssd_device_test SOURCES ssd_device_test.cc DEPS fermata_tiers LABELS unit)
fermata_test(ssd_tier_test SOURCES ssd_tier_test.cc DEPS fermata_tiers LABELS unit)
fermata_test(ssd_open_test SOURCES ssd_open_test.cc DEPS fermata_tiers LABELS unit)
fermata_test(ssd_fault_test SOURCES ssd_fault_test.cc ${FERMATA_SSD_TEST_SUPPORT} DEPS fermata_tiers LABELS unit)
fermata_test(ssd_kill_test SOURCES ssd_kill_test.cc DEPS fermata_tiers LABELS unit)
