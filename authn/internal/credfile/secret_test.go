// Copyright The kubetenant authors
// SPDX-License-Identifier: Apache-2.0

package credfile_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/kubetenant/kubetenant/authn/internal/credfile"
)

// secretOf returns the error from reading a file with one quoted secret.
func secretOf(secret string, as credfile.Secrets) error {
	r := rules()
	r.Secrets = as
	_, err := read(`"`+strings.ReplaceAll(secret, `"`, `""`)+`",u,1,,a`+"\n", r)
	return err
}

const bcryptHash = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC"

// TestUnsupportedHashesAreRejected checks that a hash that the server cannot verify is rejected
// with the name of its format. Otherwise, the text of the hash would be the password.
func TestUnsupportedHashesAreRejected(t *testing.T) {
	const sum = "qRPK7m23GJusamGpoGLby/qRPK7m23GJusamGpoGLby"
	for secret, format := range map[string]string{
		"$1$salt$" + sum:                        "$1$",
		"$apr1$salt$" + sum:                     "$apr1$",
		"$2$05$" + sum:                          "$2$",
		"$2x$05$" + sum:                         "$2x$",
		"$3$$8846f7eaee8fb117ad06bdd830b7586c":  "$3$",
		"$5$salt$" + sum:                        "$5$",
		"$5$rounds=5000$salt$" + sum:            "$5$",
		"$6$salt$" + sum:                        "$6$",
		"$7$CU..../....2Q9$" + sum:              "$7$",
		"$8$salt$" + sum:                        "$8$",
		"$9$salt$" + sum:                        "$9$",
		"$y$j9T$salt$" + sum:                    "$y$",
		"$gy$j9T$salt$" + sum:                   "$gy$",
		"$md5$salt$$" + sum:                     "$md5$",
		"$md5,rounds=5000$salt$$" + sum:         "$md5$",
		"$sha1$40000$salt$" + sum:               "$sha1$",
		"$P$BsaltsaltH":                         "$P$",
		"$H$9saltsaltH":                         "$H$",
		"$S$DsaltsaltH":                         "$S$",
		"$argon2i$v=19$m=65536,t=3,p=4$" + sum:  "$argon2i$",
		"$argon2d$v=19$m=65536,t=3,p=4$" + sum:  "$argon2d$",
		"$argon2id$v=19$m=65536,t=3,p=4$" + sum: "$argon2id$",
		"$scrypt$ln=16,r=8,p=1$" + sum:          "$scrypt$",
		"$pbkdf2$131000$salt$" + sum:            "$pbkdf2$",
		"$pbkdf2-sha256$29000$salt$" + sum:      "$pbkdf2-sha256$",
		"$pbkdf2-sha512$29000$salt$" + sum:      "$pbkdf2-sha512$",
		"$bcrypt-sha256$v=2,t=2b,r=12$" + sum:   "$bcrypt-sha256$",
		"$balloon$v=1$salt$" + sum:              "", // an unknown format
		"{SHA}" + sum:                           "{SHA}",
		"{sha}" + sum:                           "{sha}",
		"{SSHA}" + sum:                          "{SSHA}",
		"{SSHA256}" + sum:                       "{SSHA256}",
		"{SHA512}" + sum:                        "{SHA512}",
		"{MD5}" + sum:                           "{MD5}",
		"{SMD5}" + sum:                          "{SMD5}",
		"{CRYPT}$6$salt$" + sum:                 "{CRYPT}",
		"{crypt}aaqPiZY5xR5l.":                  "{crypt}",
		"{BLF-CRYPT}" + bcryptHash:              "{BLF-CRYPT}",
		"{SHA512-CRYPT}$6$salt$" + sum:          "{SHA512-CRYPT}",
		"{bcrypt}" + bcryptHash:                 "{bcrypt}",
		"{ARGON2}$argon2id$v=19$" + sum:         "{ARGON2}",
		"{PBKDF2-SHA256}29000$salt$" + sum:      "{PBKDF2-SHA256}",
		"{noop}secret":                          "{noop}",
		"{CLEARTEXT}secret":                     "{CLEARTEXT}",
		"{X-UNKNOWN}" + sum:                     "",
		"pbkdf2_sha256$260000$salt$" + sum:      "pbkdf2_sha256",
		"pbkdf2:sha256:260000$salt$" + sum:      "pbkdf2",
		"scrypt:32768:8:1$salt$" + sum:          "scrypt",
		"bcrypt_sha256$" + bcryptHash:           "bcrypt_sha256",
		"argon2$argon2id$v=19$" + sum:           "argon2",
		"SCRAM-SHA-256$4096:salt$stored:" + sum: "SCRAM-SHA-256",
		"md50123456789abcdef0123456789abcdef":   "",
		"*" + strings.Repeat("2470C0C06D", 4):   "",
		"!$6$salt$" + sum:                       "$6$",
		"!!$6$salt$" + sum:                      "$6$",
		" $6$salt$" + sum:                       "$6$",
	} {
		t.Run(secret, func(t *testing.T) {
			for as, instead := range map[credfile.Secrets]string{
				credfile.Text:         "write the token itself",
				credfile.TextOrBcrypt: "write a bcrypt hash",
			} {
				err := secretOf(secret, as)
				var at *credfile.Error
				if !errors.As(err, &at) || at.Field != 0 || !strings.Contains(err.Error(), "not supported: "+instead) ||
					!strings.Contains(err.Error(), format) || strings.Contains(err.Error(), sum) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestInvalidSecretsAreRejected checks that text that cannot be a secret is rejected with the
// reason.
func TestInvalidSecretsAreRejected(t *testing.T) {
	for secret, want := range map[string]string{
		"alice:$apr1$salt$sum":             "contains a user name and a hash",
		"alice:" + bcryptHash:              "contains a user name and a hash",
		"alice:{SHA}qRPK7m23GJusamGpoGLby": "contains a user name and a hash",
		"alice:$6$salt$sum:19000:0:99999":  "contains a user name and a hash",
		"!":                                "the mark of a locked password",
		"!!":                               "the mark of a locked password",
		"*":                                "the mark of a locked password",
		"*LK*":                             "the mark of a locked password",
		"${TOKEN}":                         "a placeholder",
		"$(TOKEN)":                         "a placeholder",
		"{{ .Values.token }}":              "a placeholder",
		"<token>":                          "a placeholder",
		"ENC[AES256_GCM,data:abc=,tag:x]":  "a placeholder or an encrypted value",
		"$ANSIBLE_VAULT;1.1;AES256\n6162":  "a placeholder or an encrypted value",
		"Bearer abc":                       "the name of an authentication scheme",
		"basic YWxpY2U6c2VjcmV0":           "the name of an authentication scheme",
		"p\xe4ssword":                      "not valid UTF-8",
	} {
		t.Run(secret, func(t *testing.T) {
			for _, as := range []credfile.Secrets{credfile.Text, credfile.TextOrBcrypt} {
				if err := secretOf(secret, as); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q", err, want)
				}
			}
		})
	}
	for _, secret := range []string{
		"$2y$05$half", "$2y$05", "$2", bcryptHash + "x", bcryptHash[:59], " " + bcryptHash, bcryptHash + ":alice",
		strings.Replace(bcryptHash, "c4Wo", "c4W+", 1),
	} {
		if err := secretOf(secret, credfile.TextOrBcrypt); err == nil ||
			!strings.Contains(err.Error(), "is not a valid bcrypt hash") {
			t.Errorf("%q: %v", secret, err)
		}
	}
}

// TestValidSecrets checks that a secret that does not have the form of a hash, a placeholder or
// another invalid secret is accepted with any characters.
func TestValidSecrets(t *testing.T) {
	for _, secret := range []string{
		"secret", "$ecret", "$ecret$", "$a$b", "{secret}", "{a", "p!", "!secret!", "a*b", "*secret", "pässword", "a b c",
		"0123456789abcdef0123456789abcdef", "a1b2c3d4-0000-4000-8000-000000000000", "_abcdefghijklmnopqrs", "x:y", "a:b:$c",
		"#quoted", "eyJhbGciOiJFUzI1NiJ9.e30.c2ln", "sha", "md5", "shark$fin", "$1", "$6", "{}", "{}secret", "dG9rZW4=",
		"//abc", "--abc",
		"<token", "basically", "bearer",
	} {
		for _, as := range []credfile.Secrets{credfile.Text, credfile.TextOrBcrypt} {
			if err := secretOf(secret, as); err != nil {
				t.Errorf("%q: %v", secret, err)
			}
		}
	}
	if err := secretOf(bcryptHash, credfile.TextOrBcrypt); err != nil {
		t.Error(err)
	}
}

// TestComments checks that a record that looks like a comment is rejected, so that its secret is
// not valid. The file formats have no comments. A secret that begins with a comment character
// must be quoted.
func TestComments(t *testing.T) {
	for data, want := range map[string]string{
		"#tok,carol,3,,a\n":                       "line 1, field 0: the record looks like a comment",
		"# tok,carol,3,,a\n":                      "line 1, field 0: the record looks like a comment",
		" #tok,carol,3,,a\n":                      "line 1, field 0: the record looks like a comment",
		";tok,carol,3,,a\n":                       "line 1, field 0: the record looks like a comment",
		"\ufeff#tok,carol,3,,a\n":                 "line 1, field 0: the record looks like a comment",
		"tok,bob,2,,a\r\n\r\n\n#tok,carol,3,,a\n": "line 4, field 0: the record looks like a comment",
		"\"#a\",bob,2,,a\n#tok,carol,3,,a\n":      "line 2, field 0: the record looks like a comment",
		"# left in March, two of them, sorry\n":   "line 1, field 0: the record looks like a comment",
		"\"#tok\",carol,3,,a\n":                   "",
		"tok,bob,2,,a\n\n\"#tok\",carol,3,,a\n":   "",
		"\ufeff\"#tok\",carol,3,,a\n":             "",
		"t#k,#carol,3,#g,,a\n":                    "",
	} {
		t.Run(data, func(t *testing.T) {
			_, err := read(data, rules())
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
}

// TestEncodings checks that the error for a file with a wrong encoding names the encoding, or
// the field and the rule that it violates.
func TestEncodings(t *testing.T) {
	wide := func(mark string, low int) string {
		out := []byte(mark)
		for _, unit := range utf16.Encode([]rune("tok,bob,2,,a\n")) {
			pair := []byte{byte(unit >> 8), byte(unit)}
			out = append(out, pair[1-low], pair[low])
		}
		return string(out)
	}
	for data, want := range map[string]string{
		wide("\xfe\xff", 1):       "line 1: the file is UTF-16",
		wide("\xff\xfe", 0):       "line 1: the file is UTF-16",
		wide("", 1):               "line 1: the file is UTF-16",
		wide("", 0):               "line 1: the file is UTF-16",
		"t\xf6k,bob,2,,a\n":       "line 1, field 0: is not valid UTF-8",
		"tok,b\xf6b,2,,a\n":       "line 1, field 1: the user name is not valid UTF-8",
		"tok,bob,\xf6,,a\n":       "line 1, field 2: the UID is not valid UTF-8",
		"tok,bob,2,\"d,\xf6\",,a": "line 1, field 3: a group is not valid UTF-8",
		"tok, bob,2,,a\n":         "line 1, field 1: the user name begins or ends with white space",
		"tok,b\u200bob,2,,a\n":    "line 1, field 1: the user name contains an invisible character",
		"tok,b\tob,2,,a\n":        "line 1, field 1: the user name contains a control character",
		"tok,bob,2,d ,,a\n":       "line 1, field 3: a group begins or ends with white space",
	} {
		t.Run(data, func(t *testing.T) {
			if _, err := read(data, rules()); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v; want %q", err, want)
			}
		})
	}
}
