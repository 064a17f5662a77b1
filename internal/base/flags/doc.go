// Package flags reads the command lines and environment variables of all our programs, and
// writes the help about them.
//
// It guarantees what scripts of 1.x rely on: a name takes one dash or two, its value
// follows as the next argument or after "="; flags may stand before, between and after
// arguments; "--" ends them; the command line wins over the environment. Package flag of
// the standard library takes the arguments apart.
//
// It must not print, end the process, or know what a flag is for.
package flags
