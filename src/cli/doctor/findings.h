// judge(): findings from facts, the causes first: what hides behind an obstacle is not judged.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "cli/doctor/facts.h"
#include "cli/doctor/finding.h"

namespace shoal::cli {

std::vector<Finding> judge(const DoctorFacts& facts, const Wanted& wanted);

// Its parts.
std::vector<Finding> judge_machine(const DoctorFacts& facts, const Wanted& wanted);
std::vector<Finding> judge_rdma(const DoctorFacts& facts, const Wanted& wanted);
std::vector<Finding> judge_thunderbolt(const ThunderboltFacts& facts, const Wanted& wanted);

// Bytes that a rank of such a group registers with its RDMA device at least: the slots of its
// links.
uint64_t registered_bytes(int nodes);

// kNode when there is a problem among them: how many, and where the remedies stand.
Status verdict(const std::vector<Finding>& findings, const Wanted& wanted);

}  // namespace shoal::cli
