#include "occl/bootstrap/unique_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "occl/base/log.h"
#include "occl/base/poll_all.h"
#include "occl/bootstrap/local_socket.h"
#include "occl/bootstrap/unique_id_messages.h"

namespace occl {
namespace {

constexpr size_t kMaxClients = 4 * kMaxRanks;
constexpr long kMaxStrangers = 2 * kMaxRanks;  // all ranks are, for a moment
constexpr int64_t kTryOnly_ms = 5;             // a get with no more time than this does not wait
constexpr int64_t kAnswerTimeout_ms = 10'000;
constexpr useconds_t kShortage_us = 20'000;
constexpr int64_t kStranger_ms = 300;
constexpr int64_t kPatience_ms = 500;  // so long a rank waits for want of descriptors
constexpr int64_t kOrphaned_ms = 2000;

struct Client {
  UniqueFd socket;
  std::string awaited;  // key of a get that has not been answered
  bool known = false;   // has shown the secret
  Deadline patience;    // to do so, where others wait for its descriptor
  bool left = false;    // has said goodbye
};

class Server {
 public:
  Server(UniqueFd listener, UniqueFd spare, const Secret& secret)
      : listener_(std::move(listener)), spare_(std::move(spare)), secret_(secret) {}

  // Ends when all ranks have said goodbye, or when those who came have gone without the rest.
  void Serve() {
    std::vector<pollfd> polls;
    while (goodbyes_ < expected_goodbyes_ && !(clients_.empty() && orphaned_.Passed())) {
      polls.assign(1, {listener_.get(), POLLIN, 0});
      for (const Client& client : clients_) polls.push_back({client.socket.get(), POLLIN, 0});
      if (PollAll(&polls, 1000) <= 0) continue;
      for (size_t i = 0; i < clients_.size(); ++i) {
        if (polls[1 + i].revents != 0 && !Handle(&clients_[i])) Remove(&clients_[i]);
      }
      std::erase_if(clients_, [](const Client& client) { return !client.socket.valid(); });
      while (clients_.size() < kMaxClients && AcceptOne()) {
      }
    }
  }

 private:
  bool AcceptOne() {
    Status shortage;
    UniqueFd socket = AcceptSameUser(listener_, &shortage);
    if (socket.valid()) is_short_ = false;
    // The kernel says so before it looks whether anybody waits.
    if (!shortage.ok() && Readable(listener_) && !MakeRoom(shortage)) usleep(kShortage_us);
    if (!socket.valid()) return false;
    const auto unknown = [](const Client& client) { return !client.known; };
    if (std::count_if(clients_.begin(), clients_.end(), unknown) >= kMaxStrangers) {
      clients_.erase(std::find_if(clients_.begin(), clients_.end(), unknown));
    }
    clients_.emplace_back();
    clients_.back().socket = std::move(socket);
    clients_.back().patience = Deadline::After(kStranger_ms);
    return true;
  }

  // Gives up a descriptor for the one who waits. False: there is none.
  bool MakeRoom(const Status& shortage) {
    if (DropStranger()) return true;
    if (!is_short_) {
      is_short_ = true;
      patience_ = Deadline::After(kPatience_ms);
    }
    if (!patience_.Passed() || !failure_.ok()) return false;
    failure_ = Error(shortage.code(),
                     "the process (pid %d) that serves the unique id cannot let all ranks in: %s",
                     static_cast<int>(getpid()), shortage.message().c_str());
    OCCL_LOG(kWarn, kLogInit, "%s", failure_.message().c_str());
    for (Client& client : clients_) {
      if (client.socket.valid() && !client.awaited.empty()) TellFailure(&client);
    }
    spare_.Reset();  // those who come from now on have it, one by one
    return true;
  }

  // False: this client is to go.
  bool TellFailure(Client* client) {
    const std::string& message = failure_.message();
    client->awaited.clear();
    client->left = true;
    static_cast<void>(
        Reply(*client, failure_.code(),
              {message.begin(), message.begin() + std::min(message.size(), kMaxValueBytes)}));
    return false;
  }

  // The oldest of those that should have shown the secret.
  bool DropStranger() {
    const auto found = std::find_if(clients_.begin(), clients_.end(), [](const Client& client) {
      return !client.known && client.patience.Passed();
    });
    if (found == clients_.end()) return false;
    clients_.erase(found);
    return true;
  }

  // A rank that goes without a goodbye has died. Init needs every rank, so it fails for all.
  void Remove(Client* client) {
    client->socket.Reset();
    if (!client->known) return;
    orphaned_ = Deadline::After(kOrphaned_ms);
    if (client->left) return;
    someone_died_ = true;
    for (Client& other : clients_) {
      if (other.socket.valid() && !other.awaited.empty()) {
        other.awaited.clear();
        static_cast<void>(Reply(other, occlRemoteError, {}));
      }
    }
  }

  // False: this client is to go.
  bool Handle(Client* client) {
    Request request;
    const Status got =
        ReceiveMessage(client->socket, &request, sizeof(request), nullptr, Deadline::After(0));
    if (!got.ok() || request.magic != kIdMagic || !SameSecret(request.secret, secret_) ||
        request.size > kMaxValueBytes) {
      return false;
    }
    client->known = true;
    if (request.nranks > 0 && request.nranks <= kMaxRanks) expected_goodbyes_ = request.nranks;
    if (!failure_.ok() && request.verb != Verb::kGoodbye) return TellFailure(client);
    const std::string key(request.key, strnlen(request.key, sizeof(request.key)));
    switch (request.verb) {
      case Verb::kSet:
        values_[key].assign(request.value, request.value + request.size);
        for (Client& other : clients_) {
          if (other.socket.valid() && other.awaited == key) {
            other.awaited.clear();
            static_cast<void>(Reply(other, occlSuccess, values_[key]));
          }
        }
        return Reply(*client, occlSuccess, {});
      case Verb::kGet:
      case Verb::kTryGet: {
        const auto found = values_.find(key);
        if (found != values_.end()) return Reply(*client, occlSuccess, found->second);
        if (someone_died_) return Reply(*client, occlRemoteError, {});
        if (request.verb == Verb::kTryGet) return Reply(*client, occlTimeout, {});
        client->awaited = key;
        return true;
      }
      case Verb::kGoodbye:
        ++goodbyes_;
        client->left = true;
        return false;
    }
    return false;
  }

  static bool Reply(const Client& client, occlResult_t code,
                    const std::vector<unsigned char>& value) {
    Answer answer = {};
    answer.magic = kIdMagic;
    answer.code = code;
    answer.size = static_cast<uint32_t>(value.size());
    std::copy(value.begin(), value.end(), answer.value);
    return SendMessage(client.socket, &answer, sizeof(answer), {}, Deadline::After(0)).ok();
  }

  const UniqueFd listener_;
  UniqueFd spare_;  // given up to tell ranks that no descriptor is left for them
  const Secret secret_;
  std::vector<Client> clients_;
  std::map<std::string, std::vector<unsigned char>> values_;
  bool someone_died_ = false;
  bool is_short_ = false;  // of descriptors, until `patience_`
  Deadline patience_;
  Status failure_;     // for all who ask from now on
  Deadline orphaned_;  // never, until somebody who was known goes
  int goodbyes_ = 0;
  int expected_goodbyes_ = 1;
};

}  // namespace

Status CreateUniqueId(occlUniqueId* id) {
  IdContent content = {};
  content.magic = kIdMagic;
  content.secret = RandomSecret();
  const std::string name = RandomSocketName();
  std::memcpy(content.socket_name, name.c_str(), name.size() + 1);
  UniqueFd listener;
  OCCL_RETURN_IF_ERROR(Listen(name, &listener));
  UniqueFd spare(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
  if (!spare.valid()) return SystemError(errno, "a descriptor to serve the unique id");
  auto server = std::make_unique<Server>(std::move(listener), std::move(spare), content.secret);
  try {
    std::thread([server = std::move(server)] { server->Serve(); }).detach();
  } catch (const std::system_error& error) {
    return SystemError(error.code().value(), "starting the thread that serves the unique id");
  }
  std::memset(id, 0, sizeof(*id));
  std::memcpy(id, &content, sizeof(content));
  return Status();
}

Status UniqueIdStore::Connect(const occlUniqueId& id, int nranks, UniqueIdStore* store) {
  IdContent content;
  std::memcpy(&content, &id, sizeof(content));
  if (content.magic != kIdMagic) {
    return Error(occlInvalidArgument, "the unique id was not made by occlGetUniqueId");
  }
  const std::string name = PrintableText(content.socket_name, sizeof(content.socket_name));
  Status connected = ::occl::Connect(name, &store->socket_);
  if (connected.code() == occlRemoteError) {
    return Error(occlRemoteError,
                 "nobody serves this unique id: the process that made it has ended, runs on "
                 "another host, or all of its ranks have come");
  }
  OCCL_RETURN_IF_ERROR(connected);
  store->secret_ = content.secret;
  store->nranks_ = nranks;
  return Status();
}

UniqueIdStore::~UniqueIdStore() {
  if (!socket_.valid()) return;
  Request request = {};
  request.magic = kIdMagic;
  request.secret = secret_;
  request.verb = Verb::kGoodbye;
  request.nranks = nranks_;
  static_cast<void>(
      SendMessage(socket_, &request, sizeof(request), {}, Deadline::After(kAnswerTimeout_ms)).ok());
}

occlStore_t UniqueIdStore::AsStore() { return {this, &Set, &Get, nullptr}; }

// One request and its answer; one that says no is an error.
Status UniqueIdStore::Ask(Request* request, const Deadline& deadline, Answer* answer) {
  request->magic = kIdMagic;
  OCCL_RETURN_IF_ERROR(SendMessage(socket_, request, sizeof(*request), {}, deadline));
  OCCL_RETURN_IF_ERROR(ReceiveMessage(socket_, answer, sizeof(*answer), nullptr, deadline));
  if (answer->magic != kIdMagic || answer->size > kMaxValueBytes) {
    return Error(occlInternalError, "the process that serves the unique id sent nonsense");
  }
  if (answer->code == occlSuccess) return Status();
  const Status no(CheckedCode(answer->code),
                  PrintableText(reinterpret_cast<const char*>(answer->value), answer->size));
  if (answer->size != 0) given_up_ = no;
  return no;
}

occlResult_t UniqueIdStore::Set(void* context, const char* key, const void* value, size_t size) {
  auto* store = static_cast<UniqueIdStore*>(context);
  if (size > kMaxValueBytes || std::strlen(key) >= kMaxKeyBytes) return occlInvalidArgument;
  Request request = {};
  request.secret = store->secret_;
  request.nranks = store->nranks_;
  request.verb = Verb::kSet;
  std::memcpy(request.key, key, std::strlen(key));
  std::memcpy(request.value, value, size);
  request.size = static_cast<uint32_t>(size);
  Answer answer;
  return store->Ask(&request, Deadline::After(kAnswerTimeout_ms), &answer).code();
}

occlResult_t UniqueIdStore::Get(void* context, const char* key, void* value, size_t capacity,
                                size_t* size, int64_t timeout_ms) {
  auto* store = static_cast<UniqueIdStore*>(context);
  if (std::strlen(key) >= kMaxKeyBytes) return occlInvalidArgument;
  const bool try_only = timeout_ms >= 0 && timeout_ms <= kTryOnly_ms;
  Request request = {};
  request.secret = store->secret_;
  request.nranks = store->nranks_;
  request.verb = try_only ? Verb::kTryGet : Verb::kGet;
  std::memcpy(request.key, key, std::strlen(key));
  Answer answer;
  const Status asked =
      store->Ask(&request, Deadline::After(try_only ? kAnswerTimeout_ms : timeout_ms), &answer);
  if (!asked.ok()) return asked.code();
  if (answer.size > capacity) return occlInternalError;
  std::memcpy(value, answer.value, answer.size);
  *size = answer.size;
  return occlSuccess;
}

}  // namespace occl
