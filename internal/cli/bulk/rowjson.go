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
	"github.com/percolator-go/percolator/internal/inspect"
	"github.com/percolator-go/percolator/internal/mvcc"
)

// Format of a row, one per line, in the files of export and load:
//
//	{"row":"bob","columns":{"balance":"10","photo":{"base64":"/9j/"}}}
//
// Rows and values are text if they are UTF-8 and {"base64": "…"} otherwise. JSON keys cannot be objects:
// columns whose names are not UTF-8 are in "base64_columns", with their names in base64. A number is
// the text of its digits. null deletes the cell.

// errBadLine is wrapped by every error about a line's contents.
var errBadLine = errors.New("bad line")

// rowCells is one row of a file.
type rowCells struct {
	row   string
	cells []columnChange
}

// columnChange is the change of one column; a deletion has no value.
type columnChange struct {
	column string
	value  []byte
	remove bool
}

// size returns the approximate size of the row in a transaction, in bytes.
func (r *rowCells) size() int {
	n := 0
	for _, c := range r.cells {
		n += len(r.row) + len(c.column) + len(c.value)
	}
	return n
}

// buffer adds the row's changes to a transaction.
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

// strictBytes is a byte string of a line. Unlike pbjson.Bytes it rejects everything ambiguous: a
// typing error in a file of millions of lines must not become an empty value.
type strictBytes []byte

// UnmarshalJSON accepts a string, a number, whose digits are the text, and {"base64": "…"}.
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
			inspect.Shortened(string(data), inspect.ValueWidth))
	}
	*b = *marked.Base64
	return nil
}

// parseRow parses a line. Its errors wrap errBadLine. It applies the database's default limits, so that
// most faults are found before anything is sent.
func parseRow(line []byte, limits mvcc.Limits) (*rowCells, error) {
	var parsed struct {
		Row     *strictBytes            `json:"row"`
		Columns map[string]*strictBytes `json:"columns"`
		Base64  map[string]*strictBytes `json:"base64_columns"`
	}
	if !utf8.Valid(line) {
		return nil, coded.Errorf("",
			`%w: not UTF-8; write bytes that are not text as {"base64": "…"}`, errBadLine)
	}
	if err := cmp.Or(checkLayout(line), checkNames(line)); err != nil {
		return nil, coded.Errorf("", "%w: %w", errBadLine, err)
	}
	// An unknown field is a typing error or from a later version; its data would be lost silently.
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&parsed); err != nil {
		return nil, coded.Errorf("", "%w: %w", errBadLine, err)
	}
	if rest := bytes.TrimSpace(line[decoder.InputOffset():]); len(rest) > 0 {
		return nil, coded.Errorf("", "%w: more follows the object: %s", errBadLine,
			inspect.Shortened(string(rest), inspect.ValueWidth))
	}
	if parsed.Row == nil {
		return nil, coded.Errorf("", `%w: no "row"`, errBadLine)
	}
	row := &rowCells{row: string(*parsed.Row)}
	// In the order of their names, so that the same file produces the same transactions.
	for _, name := range slices.Sorted(maps.Keys(parsed.Columns)) {
		row.add(name, parsed.Columns[name])
	}
	for _, name := range slices.Sorted(maps.Keys(parsed.Base64)) {
		raw, err := base64.StdEncoding.DecodeString(name)
		if err != nil {
			return nil, coded.Errorf("", "%w: column %q is not base64", errBadLine, name)
		}
		if _, twice := parsed.Columns[string(raw)]; twice {
			return nil, coded.Errorf("", "%w: column %s occurs twice", errBadLine, inspect.Printable(string(raw)))
		}
		row.add(string(raw), parsed.Base64[name])
	}
	return row, row.check(line, limits)
}

// checkLayout rejects JSON that is not one object per line, and explains how to convert it.
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

// add adds a column; nil deletes it.
func (r *rowCells) add(column string, value *strictBytes) {
	if value == nil {
		r.cells = append(r.cells, columnChange{column: column, remove: true})
		return
	}
	r.cells = append(r.cells, columnChange{column: column, value: *value})
}

// check rejects rows that cannot be stored, and text that the JSON decoder has changed.
func (r *rowCells) check(line []byte, limits mvcc.Limits) error {
	if len(r.cells) == 0 {
		return coded.Errorf("", "%w: row %s has no columns", errBadLine, inspect.Shortened(r.row, inspect.ValueWidth))
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
	}
	if err := r.within(limits); err != nil {
		return err
	}
	if bad {
		return coded.Errorf("",
			`%w: half of a surrogate pair is not text; write bytes as {"base64": "…"}`,
			errBadLine)
	}
	return nil
}

// within rejects rows over the limits.
func (r *rowCells) within(limits mvcc.Limits) error {
	for _, c := range r.cells {
		if limits.Value > 0 && len(c.value) > limits.Value {
			return coded.Errorf("", "%w: column %s: a value of %d bytes exceeds the limit of %d",
				errBadLine, inspect.Printable(c.column), len(c.value), limits.Value)
		}
		if err := limits.CheckCell(mvcc.Cell{Row: r.row, Column: c.column}); err != nil {
			return coded.Errorf("", "%w: %w", errBadLine, err)
		}
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

// rowLine is the JSON form of a row.
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

// lineBytes returns s as text if it is UTF-8, else as an object with base64.
func lineBytes(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string][]byte{"base64": []byte(s)}
}

// checkNames rejects two mistakes by which encoding/json silently loses data: a name that occurs twice
// in an object, of which it keeps the last, and a known name in different case ("Row"). It leaves
// other faults to the decoder.
func checkNames(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	first, err := decoder.Token()
	if err != nil {
		return nil
	}
	if first != json.Delim('{') {
		return errors.New(`the line is not an object: {"row": …, "columns": {…}}`)
	}
	objects := []map[string]bool{{}} // the names seen in each open object; nil: an array
	name := true                     // the next token in an open object is a name
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
				return fmt.Errorf("%s occurs twice", inspect.Printable(key))
			}
			if top[key] = true; !known(len(objects), key) {
				return fmt.Errorf("unknown name %s", inspect.Printable(key))
			}
			name = false
		default:
			name = true
		}
	}
	return nil
}

// known reports whether name is allowed at depth. At depth 2 are columns' names: all are allowed.
func known(depth int, name string) bool {
	switch depth {
	case 1:
		return name == "row" || name == "columns" || name == "base64_columns"
	case 2:
		return true
	}
	return name == "base64" || !strings.EqualFold(name, "base64") // the decoder rejects other names
}
