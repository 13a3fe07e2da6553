//go:build linux

package demo

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readKeys delivers typed keys until the input ends. Its goroutine ends with the input or the
// process.
func readKeys(from io.Reader) <-chan byte {
	keys := make(chan byte)
	go func() {
		key := make([]byte, 1)
		for {
			n, err := from.Read(key)
			if n == 1 {
				keys <- key[0]
			}
			if err != nil {
				return
			}
		}
	}()
	return keys
}

// keyByKey makes the terminal deliver keys unbuffered and without echo; restore undoes that. Ctrl-C
// still sends a signal. Other inputs are unchanged.
func keyByKey(from io.Reader) (restore func()) {
	file, ok := from.(*os.File)
	if !ok {
		return func() {}
	}
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	raw := *before
	raw.Lflag &^= unix.ICANON | unix.ECHO
	if unix.IoctlSetTermios(fd, unix.TCSETS, &raw) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
