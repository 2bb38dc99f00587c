// SPDX-License-Identifier: Apache-2.0
TEST(Faults, B01_HasAFaultThatApplies) {}
TEST(Faults, B02_HasAFaultWhoseTextIsGone) {}
TEST(Faults, B03_HasAFaultWhoseTextIsThereTwice) {}
TEST(Faults, B04_HasNoFault) {}
