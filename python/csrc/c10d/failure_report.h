// What every rank of a communicator did last, side by side.
#ifndef PYTHON_CSRC_C10D_FAILURE_REPORT_H_
#define PYTHON_CSRC_C10D_FAILURE_REPORT_H_

#include <string>

#include "occl/api/occl.h"

namespace torch_openreg {

// One line per rank, with its last operations and their states; "" if nothing is known. Does not
// wait for anybody: it works while ranks hang and after they have died.
std::string history_of_all_ranks(occlComm_t comm, int size);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_FAILURE_REPORT_H_
