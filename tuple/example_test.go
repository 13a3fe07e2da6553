package tuple_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/percolator-go/percolator/tuple"
)

// Rows of (city, day, number) sort by city, then day, then number.
func Example() {
	rows := []string{
		tuple.Pack("vienna", day(2), 10),
		tuple.Pack("vienna", day(2), 9),
		tuple.Pack("vienna", day(1), 1000),
		tuple.Pack("vienna 2", day(1), 1),
		tuple.Pack("graz", day(3), -5),
	}
	slices.Sort(rows)
	for _, row := range rows {
		var city string
		var on time.Time
		var number int
		if err := tuple.Unpack(row, &city, &on, &number); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(city, on.Format(time.DateOnly), number)
	}
	// Output:
	// graz 2010-10-03 -5
	// vienna 2010-10-01 1000
	// vienna 2010-10-02 9
	// vienna 2010-10-02 10
	// vienna 2 2010-10-01 1
}

func day(n int) time.Time { return time.Date(2010, 10, n, 0, 0, 0, 0, time.UTC) }

// Scan all rows of one city with
// percolator.Rows(table).Prefix(tuple.Prefix("vienna")).
func ExamplePrefix() {
	prefix := tuple.Prefix("vienna")
	fmt.Println(strings.HasPrefix(tuple.Pack("vienna", 7), prefix))
	fmt.Println(strings.HasPrefix(tuple.Pack("vienna 2", 7), prefix))
	// Output:
	// true
	// false
}

func ExamplePack() {
	fmt.Println(tuple.Pack("b", 2) < tuple.Pack("b", 10))
	fmt.Println(tuple.Pack("b", -2) < tuple.Pack("b", 2))
	fmt.Println(tuple.Pack("b") < tuple.Pack("b", -2))
	// Output:
	// true
	// true
	// true
}

func ExampleUnpack() {
	var name string
	var size uint8
	fmt.Println(tuple.Unpack(tuple.Pack("a", 7), &name, &size), name, size)
	fmt.Println(tuple.Unpack(tuple.Pack("a", 700), &name, &size))
	fmt.Println(tuple.Unpack("a row of another kind", &name, &size))
	// Output:
	// <nil> a 7
	// tuple: element 1: cannot store 700 (int64) in uint8
	// tuple: row "a row of another kind" is not a tuple: byte 0: unknown type code 0x61
}

func ExampleTryPack() {
	_, err := tuple.TryPack("a", []string{"b"})
	fmt.Println(err)
	var fault *tuple.ElementError
	fmt.Println(errors.As(err, &fault), fault.Index)
	// Output:
	// tuple: element 1: type []string is not supported: use a string, byte slice, integer, bool, float or time
	// true 1
}

func ExampleParse() {
	fmt.Println(tuple.Parse(tuple.Pack("vienna", 7, true)))
	// Output: [vienna 7 true] <nil>
}
