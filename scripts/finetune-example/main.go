// Finetune-example writes the small texts that docs/finetune.md works with: a
// text about capitals and languages, and conversations that ask about most of
// the countries in it, both in English and in Turkish. The countries left out of
// the conversations show what a fine-tuned model knows from the text alone.
//
//	go run ./scripts/finetune-example DIR
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// country has what both languages need; Turkish words carry their suffixes.
type country struct {
	name, capital, language string
	turkish, başkenti, dili string
}

// countries: the name, its capital and language; in Turkish "of …", "is …".
var countries = parse(`
France|Paris|French|Fransa'nın|Paris'tir|Fransızcadır
Germany|Berlin|German|Almanya'nın|Berlin'dir|Almancadır
Italy|Rome|Italian|İtalya'nın|Roma'dır|İtalyancadır
Spain|Madrid|Spanish|İspanya'nın|Madrid'dir|İspanyolcadır
Portugal|Lisbon|Portuguese|Portekiz'in|Lizbon'dur|Portekizcedir
Greece|Athens|Greek|Yunanistan'ın|Atina'dır|Yunancadır
Turkey|Ankara|Turkish|Türkiye'nin|Ankara'dır|Türkçedir
Poland|Warsaw|Polish|Polonya'nın|Varşova'dır|Lehçedir
Hungary|Budapest|Hungarian|Macaristan'ın|Budapeşte'dir|Macarcadır
Romania|Bucharest|Romanian|Romanya'nın|Bükreş'tir|Rumencedir
Bulgaria|Sofia|Bulgarian|Bulgaristan'ın|Sofya'dır|Bulgarcadır
Russia|Moscow|Russian|Rusya'nın|Moskova'dır|Rusçadır
Ukraine|Kyiv|Ukrainian|Ukrayna'nın|Kiev'dir|Ukraynacadır
Sweden|Stockholm|Swedish|İsveç'in|Stockholm'dür|İsveççedir
Norway|Oslo|Norwegian|Norveç'in|Oslo'dur|Norveççedir
Denmark|Copenhagen|Danish|Danimarka'nın|Kopenhag'dır|Dancadır
Finland|Helsinki|Finnish|Finlandiya'nın|Helsinki'dir|Fincedir
Japan|Tokyo|Japanese|Japonya'nın|Tokyo'dur|Japoncadır
China|Beijing|Chinese|Çin'in|Pekin'dir|Çincedir
Iran|Tehran|Persian|İran'ın|Tahran'dır|Farsçadır
Egypt|Cairo|Arabic|Mısır'ın|Kahire'dir|Arapçadır
Georgia|Tbilisi|Georgian|Gürcistan'ın|Tiflis'tir|Gürcücedir
Czechia|Prague|Czech|Çekya'nın|Prag'dır|Çekçedir
Austria|Vienna|German|Avusturya'nın|Viyana'dır|Almancadır
Ireland|Dublin|English|İrlanda'nın|Dublin'dir|İngilizcedir
Cuba|Havana|Spanish|Küba'nın|Havana'dır|İspanyolcadır
Peru|Lima|Spanish|Peru'nun|Lima'dır|İspanyolcadır
Chile|Santiago|Spanish|Şili'nin|Santiago'dur|İspanyolcadır
`)

// heldBack is how many of the last countries no conversation asks about.
const heldBack = 4

func parse(table string) []country {
	var out []country
	for line := range strings.Lines(strings.TrimSpace(table)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		out = append(out, country{name: f[0], capital: f[1], language: f[2], turkish: f[3], başkenti: f[4], dili: f[5]})
	}
	return out
}

// sentences are what the text says about a country.
func (c country) sentences() []string {
	return []string{
		"The capital of " + c.name + " is " + c.capital + ".",
		"People in " + c.name + " speak " + c.language + ".",
		c.turkish + " başkenti " + c.başkenti + ".",
		c.turkish + " dili " + c.dili + ".",
		"Many people visit " + c.capital + ", the capital of " + c.name + ", every year.",
	}
}

// turn is a question with its answer.
type turn struct{ question, answer string }

// turns are the questions that conversations ask about a country.
func (c country) turns() []turn {
	s := c.sentences()
	return []turn{
		{"What is the capital of " + c.name + "?", s[0]},
		{"Tell me the capital of " + c.name + ".", s[0]},
		{"Which language do people in " + c.name + " speak?", s[1]},
		{c.turkish + " başkenti neresidir?", s[2]},
		{c.turkish + " başkentini söyle.", s[2]},
		{c.turkish + " dili nedir?", s[3]},
	}
}

// writeText writes documents of eight sentences in random order.
func writeText(dir string, r *rand.Rand) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for part := range 20 {
		var b bytes.Buffer
		for range 150 {
			for range 8 {
				s := countries[r.IntN(len(countries))].sentences()
				b.WriteString(s[r.IntN(len(s))] + " ")
			}
			b.WriteString("\n<|endoftext|>\n")
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part%02d.txt", part)), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// writeChats writes conversations of one and of two questions.
func writeChats(path string, r *rand.Rand) error {
	var b bytes.Buffer
	for range 900 {
		var m []message
		for range 1 + r.IntN(2) {
			t := countries[r.IntN(len(countries)-heldBack)].turns()
			q := t[r.IntN(len(t))]
			m = append(m, message{"user", q.question}, message{"assistant", q.answer})
		}
		line, err := json.Marshal(map[string]any{"messages": m})
		if err != nil {
			return err
		}
		b.Write(append(line, '\n'))
	}
	return os.WriteFile(path, b.Bytes(), 0o666)
}

func run(dir string) error {
	r := rand.New(rand.NewPCG(1, 2))
	if err := writeText(filepath.Join(dir, "text"), r); err != nil {
		return err
	}
	return writeChats(filepath.Join(dir, "chats.jsonl"), r)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/finetune-example DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
