// Package heap bounds what the garbage collector adds to a process whose clients take much memory.
//
// By itself Go lets a heap double before it collects: 200 MiB of answers that wait for
// clients make a process 200 MiB larger twice, and it keeps that until much has been
// allocated again.
//
//  1. While somebody reports a crowd, garbage is collected once there is Slack of it, unless GOGC asks for less, or is off.
//  2. When all crowds have been over for calm, GOGC is as before and what is free goes back to the operating system.
//
// Packages rpc and peer call it, by a Gauge, for the budgets of answers and of requests.
// A crash leaves nothing: it is all in memory.
package heap
