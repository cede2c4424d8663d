// Intrusive reference counting for objects that a C handle, a stream's worker and a communicator
// hold at the same time.
#ifndef OCCL_BASE_REF_H_
#define OCCL_BASE_REF_H_

#include <atomic>
#include <utility>

namespace occl {

// Base of T. Starts with one reference, which MakeRef adopts.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  void AddRef() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    // acq_rel: whoever deletes has seen what the others wrote before they let go.
    if (HeldOnce() || references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 protected:
  // Whether the caller's reference is the only one: nobody else can come by another then.
  bool HeldOnce() const { return references_.load(std::memory_order_acquire) == 1; }
  virtual ~RefCounted() = default;

 private:
  std::atomic<int> references_{1};
};

template <typename T>
class Ref {
 public:
  Ref() = default;
  // Adopts one reference.
  static Ref Adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->AddRef();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // From a derived class.
  template <typename U>
  Ref(Ref<U>&& other) noexcept : object_(other.Release()) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->Unref();
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // Gives the reference away (to a C handle, to a queue).
  T* Release() { return std::exchange(object_, nullptr); }

 private:
  T* object_ = nullptr;
};

template <typename T, typename... Arguments>
Ref<T> MakeRef(Arguments&&... arguments) {
  return Ref<T>::Adopt(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace occl

#endif  // OCCL_BASE_REF_H_
