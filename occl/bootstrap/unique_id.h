// Rendezvous without a store of the caller's: the process that makes a unique id serves one, on a
// socket whose name and secret are in the id.
#ifndef OCCL_BOOTSTRAP_UNIQUE_ID_H_
#define OCCL_BOOTSTRAP_UNIQUE_ID_H_

#include "occl/base/clock.h"
#include "occl/base/status.h"
#include "occl/base/unique_fd.h"
#include "occl/bootstrap/process.h"

namespace occl {

struct Answer;
struct Request;

// Starts a thread that serves the id's keys until nranks ranks have said goodbye, or those who came
// have gone.
Status CreateUniqueId(occlUniqueId* id);

// The keys behind an id, as a store. The goodbye is said when it goes.
class UniqueIdStore {
 public:
  static Status Connect(const occlUniqueId& id, int nranks, UniqueIdStore* store);
  UniqueIdStore() = default;
  UniqueIdStore(UniqueIdStore&&) = default;
  UniqueIdStore& operator=(UniqueIdStore&&) = default;
  ~UniqueIdStore();

  // Valid as long as this object.
  occlStore_t AsStore();
  // Why the process that serves the id has given up; ok: it has not told so.
  const Status& given_up() const { return given_up_; }

 private:
  static occlResult_t Set(void* context, const char* key, const void* value, size_t size);
  static occlResult_t Get(void* context, const char* key, void* value, size_t capacity,
                          size_t* size, int64_t timeout_ms);
  Status Ask(Request* request, const Deadline& deadline, Answer* answer);

  UniqueFd socket_;
  Secret secret_ = {};
  int nranks_ = 0;
  Status given_up_;
};

}  // namespace occl

#endif  // OCCL_BOOTSTRAP_UNIQUE_ID_H_
