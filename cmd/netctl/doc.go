// Command netctl steers Contiv from the command line: it calls netmaster's REST
// API and prints what that answers. All of it is in internal/netctl; this package
// only ends the process, with the exit code that internal/netctl documents.
package main
