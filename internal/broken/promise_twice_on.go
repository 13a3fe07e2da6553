//go:build broken_promise_twice

package broken

// PromiseTwice: a fresh node lets a second one found the cluster although it has promised that to another (package cluster).
const PromiseTwice = true
