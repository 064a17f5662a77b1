# man.awk makes a manual page of a page of docs/reference: awk -v name=netctl -v section=1
# -v about=PHRASE -v date=YYYY-MM-DD -v version=V -f man.awk PAGE. A row of a table becomes
# a paragraph with its first cell as the tag.
BEGIN {
	printf ".TH %s %s %s \"Contiv %s\"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n", toupper(name), section, date, version, name, about
}

# text is a line of Markdown as roff.
function text(s, from, to, link) {
	gsub(/\\\|/, "|", s)
	gsub(/\\</, "<", s)
	gsub(/\\\*/, "*", s)
	gsub(/\\/, "\\e", s)
	gsub(/-/, "\\-", s)
	while (match(s, /\[[^]]*\]\([^)]*\)/)) {
		link = substr(s, RSTART + 1, RLENGTH - 1)
		sub(/\]\(.*/, "", link)
		s = substr(s, 1, RSTART - 1) link substr(s, RSTART + RLENGTH)
	}
	while (match(s, /`[^`]*`/))
		s = substr(s, 1, RSTART - 1) "\\fB" substr(s, RSTART + 1, RLENGTH - 2) "\\fR" substr(s, RSTART + RLENGTH)
	return (s ~ /^[.']/ ? "\\&" : "") s
}

/^<!--/ || /^# / || /^\|---/ { next }
/^```/ { code = !code; print code ? ".PP\n.nf" : ".fi"; next }
code { gsub(/\\/, "\\e"); print "\\&" $0; next }
/^## / { print ".SH " toupper(text(substr($0, 4))); next }
/^### / { print ".SS " text(substr($0, 5)); next }
/^\| / {
	n = split(substr($0, 3, length($0) - 4), cell, / \| /)
	if (!rows++) {
		for (i = 1; i <= n; i++) head[i] = cell[i]
		next
	}
	print ".TP\n" text(cell[1]) "\n" text(cell[n])
	for (i = 2; i < n; i++)
		if (cell[i] !~ /^ *$/) print ".br\n" text(head[i] ": " cell[i])
	next
}
{ rows = 0 }
/^- / { print ".IP \\(bu 2\n" text(substr($0, 3)); next }
/^$/ { print ".PP"; next }
{ sub(/; \[.*/, "."); print text($0) } # a man page leads to no other page
