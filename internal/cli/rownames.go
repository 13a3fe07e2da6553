package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// checkNames refuses what encoding/json would take without a word: a name that comes
// twice in an object, of which it keeps the last, and a name of ours in other letters
// ("Row"). Either is a mistake in the file, and data would be lost in silence. Other
// faults are left to the decoder that comes after it.
func checkNames(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	first, err := decoder.Token()
	if err != nil {
		return nil
	}
	if first != json.Delim('{') {
		return errors.New(`the line is not an object: {"row": …, "columns": {…}}`)
	}
	objects := []map[string]bool{{}} // the names seen in each object that is open; nil: an array
	name := true                     // a name comes next, where an object is open
	for len(objects) > 0 {
		token, err := decoder.Token()
		if err != nil {
			if errors.Is(err, io.EOF) || len(objects) > 0 {
				return nil
			}
			return err
		}
		top := objects[len(objects)-1]
		switch delim, _ := token.(json.Delim); {
		case delim == '{':
			objects, name = append(objects, map[string]bool{}), true
		case delim == '[':
			objects = append(objects, nil)
		case delim != 0:
			objects, name = objects[:len(objects)-1], true
		case top != nil && name:
			key, _ := token.(string)
			if top[key] {
				return fmt.Errorf("%s comes twice", printable(key))
			}
			if top[key] = true; !known(len(objects), key) {
				return fmt.Errorf("%s is not known here", printable(key))
			}
			name = false
		default:
			name = true
		}
	}
	return nil
}

// known reports whether the name may stand at the depth: names of columns, at the second,
// are anybody's.
func known(depth int, name string) bool {
	switch depth {
	case 1:
		return name == "row" || name == "columns" || name == "base64_columns"
	case 2:
		return true
	}
	return name == "base64" || !strings.EqualFold(name, "base64") // others the decoder refuses
}
