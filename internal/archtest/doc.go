// Package archtest contains only tests, which enforce the repository's architecture and house
// rules.
//
//  1. Imports point downward only: imports_test.go holds the table.
//  2. No function over 70 lines and no file over 600, except in tests and generated code.
//  3. Every exported name and every package has a comment.
//  4. No test sleeps. No init function. No unfinished business in code or documents.
//
// testdata/allowed.txt lists temporary exceptions. An unused entry fails too, so the list only
// shrinks. testdata/bad violates every rule once, to show that the tests can fail.
package archtest
