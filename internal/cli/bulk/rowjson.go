package bulk

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	percolator "github.com/percolator-go/percolator"
	"github.com/percolator-go/percolator/internal/cli/shell"
	"github.com/percolator-go/percolator/internal/coded"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// A row on a line of its own, as export writes and load reads it:
//
//	{"row":"bob","columns":{"balance":"10","photo":{"base64":"/9j/"}}}
//
// Rows and values are text where they are UTF-8 and {"base64": "…"} where not. A JSON key
// can't be marked so: columns whose names are not UTF-8 stand in "base64_columns", their
// names in base64. A number is text as it is written. A value of null deletes the cell.

// errBadLine is wrapped by every fault of a line itself, whatever the repository holds.
var errBadLine = errors.New("bad line")

// rowCells is one row of a file.
type rowCells struct {
	row   string
	cells []columnChange
}

// columnChange is what happens to one column; a deletion has no value.
type columnChange struct {
	column string
	value  []byte
	remove bool
}

// size is about what the row takes in a transaction.
func (r *rowCells) size() int {
	n := 0
	for _, c := range r.cells {
		n += len(r.row) + len(c.column) + len(c.value)
	}
	return n
}

// buffer puts the row's changes into a transaction.
func (r *rowCells) buffer(tx *percolator.Tx, table string) {
	for _, c := range r.cells {
		column := percolator.Column{Table: table, Name: c.column}
		if c.remove {
			tx.Delete(r.row, column)
			continue
		}
		tx.Set(r.row, column, c.value)
	}
}

// strictBytes is a byte string of a line. Unlike shell.JSONBytes it accepts nothing that it
// would have to guess at: a typing error in a file of millions of lines must not become
// an empty value.
type strictBytes []byte

// UnmarshalJSON accepts a string, a number, which is text as it is written, and
// {"base64": "…"}.
func (b *strictBytes) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
		*b = strictBytes(text)
		return nil
	}
	if len(data) > 0 && (data[0] == '-' || data[0] >= '0' && data[0] <= '9') {
		*b = slices.Clone(data)
		return nil
	}
	var marked struct {
		Base64 *[]byte `json:"base64"`
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&marked); err != nil || marked.Base64 == nil {
		return fmt.Errorf(`%s is neither "text", a number nor {"base64": "…"}`,
			shell.Shortened(string(data), shell.ValueWidth))
	}
	*b = *marked.Base64
	return nil
}

// parseRow reads a line. Its errors wrap errBadLine and say what is wrong; it applies the
// repository's default limits, so that most faults are found before anything is sent.
func parseRow(line []byte, limits mvcc.Limits) (*rowCells, error) {
	var parsed struct {
		Row     *strictBytes            `json:"row"`
		Columns map[string]*strictBytes `json:"columns"`
		Base64  map[string]*strictBytes `json:"base64_columns"`
	}
	if !utf8.Valid(line) {
		return nil, coded.Errorf("",
			`%w: not UTF-8; bytes that are no text are written {"base64": "…"}`, errBadLine)
	}
	if err := cmp.Or(checkLayout(line), checkNames(line)); err != nil {
		return nil, coded.Errorf("", "%w: %w", errBadLine, err)
	}
	// An unknown field is a typing error or of a later version; either way its data would
	// be lost silently.
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return nil, coded.Errorf("", "%w: %w", errBadLine, err)
	}
	if rest := bytes.TrimSpace(line[decoder.InputOffset():]); len(rest) > 0 {
		return nil, coded.Errorf("", "%w: more follows the object: %s", errBadLine,
			shell.Shortened(string(rest), shell.ValueWidth))
	}
	if parsed.Row == nil {
		return nil, coded.Errorf("", `%w: no "row"`, errBadLine)
	}
	row := &rowCells{row: string(*parsed.Row)}
	// In the order of their names, so that the same file makes the same transactions.
	for _, name := range slices.Sorted(maps.Keys(parsed.Columns)) {
		row.add(name, parsed.Columns[name])
	}
	for _, name := range slices.Sorted(maps.Keys(parsed.Base64)) {
		raw, err := base64.StdEncoding.DecodeString(name)
		if err != nil {
			return nil, coded.Errorf("", "%w: column %q is not base64", errBadLine, name)
		}
		if _, twice := parsed.Columns[string(raw)]; twice {
			return nil, coded.Errorf("", "%w: column %s comes twice", errBadLine, shell.Printable(string(raw)))
		}
		row.add(string(raw), parsed.Base64[name])
	}
	return row, row.check(line, limits)
}

// checkLayout refuses JSON that is not one object a line, and says how to make it so.
func checkLayout(line []byte) error {
	switch line = bytes.TrimSpace(line); {
	case len(line) > 0 && line[0] == '[':
		return errors.New("a JSON array: write one object per line, as `jq -c '.[]' FILE` does")
	case len(line) > 0 && line[0] == '{' && line[len(line)-1] != '}':
		return errors.New("the object does not end on its line: write each object on one line, " +
			"as `jq -c . FILE` does")
	}
	return nil
}

// add adds a column; no value deletes it.
func (r *rowCells) add(column string, value *strictBytes) {
	if value == nil {
		r.cells = append(r.cells, columnChange{column: column, remove: true})
		return
	}
	r.cells = append(r.cells, columnChange{column: column, value: *value})
}

// check refuses what could not be stored, and text that the JSON decoder has changed.
func (r *rowCells) check(line []byte, limits mvcc.Limits) error {
	if len(r.cells) == 0 {
		return coded.Errorf("", "%w: row %s has no columns", errBadLine, shell.Shortened(r.row, shell.ValueWidth))
	}
	// encoding/json silently replaces half of a surrogate pair by U+FFFD.
	replaced := !bytes.ContainsRune(line, utf8.RuneError) &&
		!bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`))
	lossy := func(text []byte) bool {
		return replaced && bytes.ContainsRune(text, utf8.RuneError) && utf8.Valid(text)
	}
	bad := lossy([]byte(r.row))
	for _, c := range r.cells {
		bad = bad || lossy([]byte(c.column)) || lossy(c.value)
		if limits.Value > 0 && len(c.value) > limits.Value {
			return coded.Errorf("", "%w: column %s: a value of %d bytes is over the limit of %d",
				errBadLine, shell.Printable(c.column), len(c.value), limits.Value)
		}
		if err := limits.CheckCell(mvcc.Cell{Row: r.row, Column: c.column}); err != nil {
			return coded.Errorf("", "%w: %w", errBadLine, err)
		}
	}
	if bad {
		return coded.Errorf("",
			`%w: half of a surrogate pair is no text; bytes are written {"base64": "…"}`,
			errBadLine)
	}
	return nil
}

// rowWriter writes rows as lines. It keeps its buffer between rows.
type rowWriter struct {
	line bytes.Buffer
	enc  *json.Encoder
}

func newRowWriter() *rowWriter {
	w := &rowWriter{}
	w.enc = json.NewEncoder(&w.line)
	w.enc.SetEscapeHTML(false)
	return w
}

// rowLine is a row as encoding/json writes it: names in order.
type rowLine struct {
	Row     any            `json:"row"`
	Columns map[string]any `json:"columns,omitempty"`
	Base64  map[string]any `json:"base64_columns,omitempty"`
}

// append writes the cells of one row as one line. The result is valid until the next call.
func (w *rowWriter) append(cells []percolator.Cell) ([]byte, error) {
	line := rowLine{lineBytes(cells[0].Row), map[string]any{}, map[string]any{}}
	for _, c := range cells {
		if value := lineBytes(string(c.Value)); utf8.ValidString(c.Column.Name) {
			line.Columns[c.Column.Name] = value
		} else {
			line.Base64[base64.StdEncoding.EncodeToString([]byte(c.Column.Name))] = value
		}
	}
	w.line.Reset()
	if err := w.enc.Encode(line); err != nil {
		return nil, err
	}
	return shell.EscapeJSON(w.line.Bytes()), nil
}

// lineBytes returns text where it is UTF-8, else marked base64.
func lineBytes(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string][]byte{"base64": []byte(s)}
}

// checkNames refuses two mistakes that encoding/json accepts, losing data silently: a
// name that occurs twice in an object, of which it keeps the last, and one of our names
// in other letters ("Row"). Other faults are left to the decoder.
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
			return nil
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
				return fmt.Errorf("%s comes twice", shell.Printable(key))
			}
			if top[key] = true; !known(len(objects), key) {
				return fmt.Errorf("%s is not known here", shell.Printable(key))
			}
			name = false
		default:
			name = true
		}
	}
	return nil
}

// known reports whether name is allowed at depth. Names at depth 2 are those of columns,
// and any is.
func known(depth int, name string) bool {
	switch depth {
	case 1:
		return name == "row" || name == "columns" || name == "base64_columns"
	case 2:
		return true
	}
	return name == "base64" || !strings.EqualFold(name, "base64") // others the decoder refuses
}
