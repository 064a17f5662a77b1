// Package flags reads the command line, environment variables and configuration files of all
// our programs, and writes their help. It guarantees what scripts of 1.x rely on: one dash or
// two, a value as the next argument or after "=", flags in any position, "--" ends them. The
// command line wins over the environment, which wins over the file. It must not print, end the
// process, or know what a flag is for. It is called by netmaster, netplugin, netctl and
// contivlab. Start with Set.
package flags
