#include "python/csrc/c10d/group_store.h"

#include <c10/util/StringUtil.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "python/csrc/c10d/store_access.h"

namespace torch_openreg {
namespace {

std::string environment(const char* name) { return c10d::getCvarString({name}, ""); }

bool is_of_the_agent(const c10::intrusive_ptr<c10d::Store>& store) {
  const c10d::TCPStore* const served = as_served(store);
  return served != nullptr && std::to_string(served->getPort()) == environment("MASTER_PORT");
}

}  // namespace

// What torchrun tells its ranks: torch/distributed/elastic/agent/server/local_elastic_agent.py.
c10::intrusive_ptr<c10d::Store> store_of_attempt(c10::intrusive_ptr<c10d::Store> store) {
  const std::string restarts = environment("TORCHELASTIC_RESTART_COUNT");
  if (restarts.empty() || restarts == "0" || environment("GROUP_WORLD_SIZE") != "1" ||
      store == nullptr || !is_of_the_agent(store)) {
    return store;
  }
  return c10::make_intrusive<c10d::PrefixStore>(c10::str("occl_restart_", restarts),
                                                std::move(store));
}

c10::intrusive_ptr<c10d::Store> store_of_members(c10::intrusive_ptr<c10d::Store> store,
                                                 std::vector<std::uint64_t> members) {
  if (members.empty() || store == nullptr) {
    return store;
  }
  std::sort(members.begin(), members.end());
  return c10::make_intrusive<c10d::PrefixStore>(
      "occl_of_" + c10::sha1(c10::Join(",", members)).str(), std::move(store));
}

}  // namespace torch_openreg
