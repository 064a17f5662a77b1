// Command netctl is Contiv's command line: it calls netmaster's REST API and prints the
// answer. This package only gives the process's arguments and streams to package netctl,
// and ends with the exit code that it returns. Start with run.
package main
