// Which process serves a store, found without asking it.
#ifndef PYTHON_CSRC_C10D_STORE_SERVER_H_
#define PYTHON_CSRC_C10D_STORE_SERVER_H_

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

namespace torch_openreg {

// This process's TCP sockets whose other end has this port.
std::vector<int> connections_to(int port);

// The process at the other end of this process's connection to `store`; 0 where it is on another
// host, in another pid or network namespace, or another user's. Looks through /proc: milliseconds.
long long pid_of_server(const c10d::TCPStore& store);

}  // namespace torch_openreg

#endif  // PYTHON_CSRC_C10D_STORE_SERVER_H_
