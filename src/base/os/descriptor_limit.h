// reserve_descriptors: makes room for files and sockets before they are opened.
//
// Thread rule: the limit belongs to the process; call before there are many threads.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace shoal {

// Room for so many more descriptors, with some to spare: raises this process's soft limit to the
// hard one when it has to. kNode, naming what is needed and the limit, when that does not suffice.
Status reserve_descriptors(size_t more);

}  // namespace shoal
