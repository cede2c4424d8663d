// Where in the Python program something happens.
#ifndef PYTHON_CSRC_SANITIZER_PLACES_H_
#define PYTHON_CSRC_SANITIZER_PLACES_H_

#include <string>
#include <utility>
#include <vector>

#include "python/csrc/sanitizer/engine/access.h"

namespace torch_openreg::sanitizer {

// A place in readable form.
struct PlaceText {
  std::string file;  // "" if nothing is known
  int line = 0;
  std::string function;
  // For work of the autograd engine: the node, and where its operator was called in the forward
  // pass. The place itself is the call of backward().
  std::string node;
  std::string forward_file;
  int forward_line = 0;
};

// The calling thread's innermost Python frame outside of torch, of this package and of the standard
// library. On a thread of the autograd engine: the last call of backward(), with the node that
// runs. Takes the interpreter lock for the time of a walk along the frames if the thread has any. 0
// where there is nothing to see.
Place current_place();
// The calling thread starts a backward pass here.
void note_backward();
// Needs the interpreter lock.
PlaceText describe(Place place);
// Which files are skipped: of the prefixes that fit a path the longest decides. Needs the
// interpreter lock.
void set_skipped_paths(std::vector<std::pair<std::string, bool>> prefixes);

}  // namespace torch_openreg::sanitizer

#endif  // PYTHON_CSRC_SANITIZER_PLACES_H_
