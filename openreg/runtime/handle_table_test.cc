#include "openreg/runtime/handle_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace openreg {
namespace {

struct OpaqueThing;
using Handle = OpaqueThing*;
using Table = HandleTable<int, 5, Handle>;

Handle Make(Table* table, int value) {
  return table->Insert([value](int* object, Handle) { *object = value; });
}

TEST(HandleTable, FindsLiveObjectsOnly) {
  Table table;
  Handle handle = Make(&table, 42);
  ASSERT_NE(handle, nullptr);
  ASSERT_NE(table.Get(handle), nullptr);
  EXPECT_EQ(*table.Get(handle), 42);
  EXPECT_NE(table.Remove(handle), nullptr);
  EXPECT_EQ(table.Get(handle), nullptr);
  EXPECT_EQ(table.Remove(handle), nullptr);
}

TEST(HandleTable, RecognisesMadeUpHandles) {
  Table table;
  Handle handle = Make(&table, 1);
  auto value = reinterpret_cast<uintptr_t>(handle);
  HandleTable<int, 6, Handle> other;
  EXPECT_EQ(other.Get(handle), nullptr);
  EXPECT_EQ(table.Get(nullptr), nullptr);
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(table.Get(reinterpret_cast<Handle>(value ^ uintptr_t{1} << bit)), nullptr) << bit;
  }
}

TEST(HandleTable, NoHandleOfAnUnusedSlot) {
  Table table;
  auto value = reinterpret_cast<uintptr_t>(Make(&table, 1));
  for (uintptr_t generation = 0; generation < 6; ++generation) {
    for (uintptr_t index = 1; index < 300; ++index) {
      auto made_up = reinterpret_cast<Handle>(generation << 24 | index << 4 | (value & 15));
      EXPECT_EQ(table.Get(made_up), nullptr) << generation << " " << index;
    }
  }
}

TEST(HandleTable, NeverRepeatsAHandle) {
  Table table;
  std::set<Handle> seen;
  for (int i = 0; i < 5000; ++i) {
    Handle handle = Make(&table, i);
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_NE(table.Remove(handle), nullptr);
    table.Recycle(handle);
  }
}

TEST(HandleTable, IsFullAtAMillion) {
  Table table;
  std::vector<Handle> handles;
  for (int i = 0; i < 1 << 20; ++i) handles.push_back(Make(&table, i));
  EXPECT_EQ(Make(&table, 0), nullptr);
  EXPECT_EQ(*table.Get(handles.back()), (1 << 20) - 1);
  EXPECT_NE(table.Remove(handles[7]), nullptr);
  table.Recycle(handles[7]);
  Handle again = Make(&table, 8);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(*table.Get(again), 8);
  EXPECT_EQ(table.Get(handles[7]), nullptr);
}

}  // namespace
}  // namespace openreg
