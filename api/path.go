package api

import (
	"fmt"
	"strings"
)

// checkPath refuses a path with an empty, "." or ".." part: clients and servers resolve
// such parts, and the request would reach another object.
func checkPath(path string) error {
	path, _, _ = strings.Cut(path, "?")
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/") {
		switch part {
		case "":
			return fmt.Errorf("%s: a name is empty; give the object's name", path)
		case ".", "..":
			return fmt.Errorf("%s: %q cannot be the name of an object", path, part)
		}
	}
	return nil
}
