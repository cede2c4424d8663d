#include "occl/bootstrap/messages.h"

#include <string>

#include "gtest/gtest.h"

namespace occl {
namespace {

std::string Printable(const std::string& text) { return PrintableText(text.data(), text.size()); }

TEST(PrintableText, KeepsTextAndEndsAtItsCapacity) {
  EXPECT_EQ(Printable("rank 1: \"gr\xc3\xb6\xc3\x9f"
                      "er\" \xe2\x86\x92 \xf0\x9f\x98\x80"),
            "rank 1: \"gr\xc3\xb6\xc3\x9f"
            "er\" \xe2\x86\x92 \xf0\x9f\x98\x80");
  EXPECT_EQ(PrintableText("abc", 2), "ab");
  EXPECT_EQ(Printable(std::string("ab\0cd", 5)), "ab");
}

// Whatever bytes came: what is shown is UTF-8 without control characters.
TEST(PrintableText, ReplacesWhatIsNoText) {
  EXPECT_EQ(Printable("a\nb\x1b[2J\x7f"), "a?b?[2J?");
  EXPECT_EQ(Printable("\x9e\xff\xfe"), "???");
  EXPECT_EQ(Printable("\xc3"), "?");       // cut
  EXPECT_EQ(Printable("\xe2\x86"), "??");  // cut
  EXPECT_EQ(Printable("\xe2\x86"
                      "a"),
            "??a");
  EXPECT_EQ(Printable("\xc0\xaf"), "??");            // overlong
  EXPECT_EQ(Printable("\xe0\x80\xaf"), "???");       // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");  // beyond Unicode
  EXPECT_EQ(Printable("\xc3\xb6\x80"), "\xc3\xb6?");
}

}  // namespace
}  // namespace occl
